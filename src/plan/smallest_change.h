// Does a plan fit, and if not: what is the least that must change?
#pragma once

#include <optional>

#include "plan/search.h"

namespace trireme::plan {

struct SmallestChange {
  Candidate to;
  int changes =
      0;  ///< settings that differ from the plan that was asked for; dp follows the other degrees and is not counted
  int64_t devices = 0;  ///< more than were asked for only where no plan fits those
};

/// Among all plans that fit the one with the fewest changes from `base`, of those the fastest. Where none fits `devices`, the smallest number
/// that one fits, up to `most_devices`: every number within a host, then whole hosts (at most 64 numbers between one that is too small and
/// twice as many). Nothing when none fits those either.
[[nodiscard]] std::optional<SmallestChange> smallest_change(const ModelNumbers& model, const MachineNumbers& machine,
                                                            const TrainingNumbers& training, int64_t devices,
                                                            const Constraints& constraints, const Plan& base,
                                                            int64_t most_devices);

}  // namespace trireme::plan
