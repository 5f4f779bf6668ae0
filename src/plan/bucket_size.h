// How many bytes of gradients to reduce together.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/numbers.h"

namespace trireme::plan {

struct BucketSize {
  int64_t bytes = 0;
  double seconds = 0;  ///< of the step with buckets of that size
};

/// Sizes from 1 MiB to 1 GiB with which the fullest rank needs no more than `limit`, fastest first (of equally fast ones the smallest). Small buckets pay the latency often, of large ones more is left
/// when backward ends: docs/planner_costs.md, 3.10. Empty where there is nothing to reduce in buckets: one replica, ZeRO 3, frozen weights, a network by
/// operators, or a plan that says its own.
[[nodiscard]] std::vector<BucketSize> bucket_sizes(const ModelNumbers& model, const MachineNumbers& machine,
                                                   const TrainingNumbers& training, const Plan& plan, Bytes limit);

}  // namespace trireme::plan
