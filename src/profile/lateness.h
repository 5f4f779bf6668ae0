// By how much each rank came later to the collectives of a step than the others, and what it did meanwhile: from the collective traces alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profile/collective_trace.h"

namespace trireme::profile {

/// Of the times at which the members of a group came to one collective: the index of the last; of equals the first. At least one is required.
[[nodiscard]] size_t last_to_come(std::span<const int64_t> arrivals);

/// What a member that was inside from `start` to `end` waited of that for the last one, which came at `latest`.
[[nodiscard]] int64_t waited_ns(int64_t start, int64_t end, int64_t latest);

/// What the others waited for one rank in one step: over all collectives to which it came last, how much later than the mean of the others.
/// `late` is the sum of its three parts, each of them also relative to the mean of the others, so that one may be negative.
struct Lateness {
  int64_t late_ns = 0;
  int64_t data_ns = 0;           ///< waited for data (trireme/profile/data_wait.h) since its call before
  int64_t communication_ns = 0;  ///< came out of its call before so much later, or was in other groups' calls meanwhile
  int64_t compute_ns = 0;        ///< the rest: its own code
};

struct StepLateness {
  uint32_t step = 0;
  uint32_t before = 0;  ///< number of the step before; 0: calls from before the first
  /// From the end of the last call before the step to the end of its last call, mean of the ranks.
  int64_t duration_ns = 0;
  std::vector<Lateness> ranks;  ///< as the traces
};

/// The steps after `after_step` that all traces hold whole, by number: those of which a call before and a call after are there. Calls that name no
/// step (trireme::set_step()) count for none. Of groups, those whose members all have a trace. Of collectives, those that nobody can leave before all
/// have come. Traces of other hosts are brought to the first one's clock by the ends of the calls that both were in, 64 at a
/// time, so that clocks may drift.
[[nodiscard]] std::vector<StepLateness> lateness_of_steps(const std::vector<TraceSnapshot>& traces,
                                                          uint32_t after_step = 0);

}  // namespace trireme::profile
