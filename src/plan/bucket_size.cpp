#include "plan/bucket_size.h"

#include <algorithm>

namespace trireme::plan {

std::vector<BucketSize> bucket_sizes(const ModelNumbers& model, const MachineNumbers& machine,
                                     const TrainingNumbers& training, const Plan& plan, Bytes limit) {
  std::vector<BucketSize> sizes;
  if (!model.operators.empty() || plan.dp * plan.cp == 1 || plan.zero_stage == 3 || plan.bucket_bytes > 0 ||
      training.frozen_base) {
    return sizes;
  }
  for (int64_t mb = 1; mb <= 1024; mb *= 2) {
    Plan with = plan;
    with.bucket_bytes = mb << 20;
    if (peak_memory(model, machine, training, with).parts.total() > limit) continue;
    sizes.push_back({with.bucket_bytes, step_time(model, machine, training, with).total().value});
  }
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const BucketSize& a, const BucketSize& b) { return a.seconds < b.seconds; });
  return sizes;
}

}  // namespace trireme::plan
