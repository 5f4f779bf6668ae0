#include "comm/bucket_plan.h"

#include <algorithm>
#include <map>

namespace trireme::comm {

std::vector<std::vector<size_t>> plan_buckets(std::span<const BucketItem> items, std::span<const size_t> order,
                                              int64_t first_bytes, int64_t bytes) {
  struct Open {
    std::vector<size_t> members;
    int64_t bytes = 0;
  };
  std::vector<std::vector<size_t>> buckets;
  std::map<DType, Open> open;
  for (const size_t index : order) {
    Open& bucket = open[items[index].dtype];
    bucket.members.push_back(index);
    bucket.bytes += items[index].bytes;
    if (bucket.bytes >= (buckets.empty() ? first_bytes : bytes)) {
      buckets.push_back(std::move(bucket.members));
      bucket = {};
    }
  }
  const size_t num_full = buckets.size();
  for (auto& [dtype, bucket] : open) {
    if (!bucket.members.empty()) buckets.push_back(std::move(bucket.members));
  }
  // What is left over is complete when its last member is.
  std::vector<size_t> position(items.size());
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  std::sort(buckets.begin() + static_cast<std::ptrdiff_t>(num_full), buckets.end(),
            [&position](const auto& a, const auto& b) { return position[a.back()] < position[b.back()]; });
  return buckets;
}

}  // namespace trireme::comm
