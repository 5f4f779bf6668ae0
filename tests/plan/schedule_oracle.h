// What the tests of schedules compare with: two naive executions that share no code with the library.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "trireme/plan/schedule.h"

namespace trireme::plan {

/// Runs the lists as ranks with zero-size buffers would, by trying each rank in turn until nothing moves. Empty when every rank gets to its
/// end and everything was right on the way; else what was wrong first. `rules` must name stages and micro-batches.
[[nodiscard]] std::string brute_force_fault(const Schedule& schedule, const ScheduleRules& rules);

/// Times of one rank when messages take none and never block.
struct RankTimes {
  double first_start = 0;
  double last_end = 0;
  double busy = 0;
};
[[nodiscard]] std::vector<RankTimes> run_with_times(const Schedule& schedule, const std::vector<int>& rank_of_stage,
                                                    double forward, double input, double weight);

/// A valid schedule of one of many kinds, with what it must be right for (bounds at its own peaks where `seed` says so).
struct SeededSchedule {
  std::string name;
  Schedule schedule;
  ScheduleRules rules;
};
[[nodiscard]] SeededSchedule seeded_schedule(uint64_t seed);

/// Changes one to three things.
void mutate(SeededSchedule& seeded, std::mt19937_64& random);

}  // namespace trireme::plan
