// Would fewer of the same devices be faster? They are where their number does not go well with the batch, or where the network holds all up.
#pragma once

#include <optional>

#include "plan/search.h"

namespace trireme::plan {

struct FewerDevices {
  int64_t devices = 0;
  Candidate best;
};

/// The fastest plan on fewer devices, where it is faster than `seconds`, the best on all `devices`. Whole hosts; devices where there is one.
/// Tried are the largest number that divides the global batch, half of all, then one host less and so on, until kMostPlans plans were looked
/// at; none that would have to compute faster than a device can.
///
/// training_flops   model FLOPs of a step
/// Cost             at most about kMostPlans plans more than the largest single search
[[nodiscard]] std::optional<FewerDevices> faster_on_fewer(const ModelNumbers& model, const MachineNumbers& machine,
                                                          const TrainingNumbers& training, int64_t devices,
                                                          const Constraints& constraints, double training_flops,
                                                          double seconds);

}  // namespace trireme::plan
