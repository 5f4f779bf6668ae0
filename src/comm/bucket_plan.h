// Which parameters share a bucket. Without LibTorch: sizes in, indices out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/transport/call_info.h"

namespace trireme::comm {

struct BucketItem {
  int64_t bytes = 0;
  DType dtype = DType::kF32;
};

/// Fills buckets in the given order, one dtype each. A bucket is closed as soon as it holds its limit of bytes or more:
/// `first_bytes` for the first one, `bytes` for the others. Buckets come out in the order in which they are complete
/// when gradients arrive in `order`.
[[nodiscard]] std::vector<std::vector<size_t>> plan_buckets(std::span<const BucketItem> items,
                                                            std::span<const size_t> order, int64_t first_bytes,
                                                            int64_t bytes);

}  // namespace trireme::comm
