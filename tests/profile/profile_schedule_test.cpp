// Oracle: torch.profiler.schedule's documented rules, written out by hand for the schedules of public reports, and as a second implementation that
// walks phase by phase.
#include "profile/profile_schedule.h"

#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"

namespace trireme::profile {
namespace {

std::string actions(const ProfileSchedule& schedule, int64_t steps) {
  std::string text;
  for (int64_t step = 0; step < steps; ++step) text += "-wRS"[static_cast<int>(action_at(schedule, step))];
  return text;
}

TEST(ProfileSchedule, RecordsTheStepsThatItsRulesSay) {
  EXPECT_EQ(actions({.wait = 1, .warmup = 1, .active = 3, .repeat = 2}, 12), "-wRRS-wRRS--");
  EXPECT_EQ(actions({.wait = 0, .warmup = 0, .active = 5, .repeat = 1}, 8), "RRRRS---");
  EXPECT_EQ(actions({.wait = 2, .warmup = 1, .active = 3, .repeat = 5}, 30), "--wRRS--wRRS--wRRS--wRRS--wRRS");
  EXPECT_EQ(actions({.skip_first = 3, .wait = 0, .warmup = 1, .active = 1, .repeat = 0}, 9), "---wSwSwS");
}

TEST(ProfileSchedule, EqualsAWalkThroughItsPhases) {
  for (int64_t skip = 0; skip < 3; ++skip) {
    for (int64_t wait = 0; wait < 3; ++wait) {
      for (int64_t warmup = 0; warmup < 3; ++warmup) {
        for (int64_t active = 1; active < 4; ++active) {
          for (int64_t repeat = 0; repeat < 4; ++repeat) {
            std::string want(static_cast<size_t>(skip), '-');
            for (int64_t cycle = 0; want.size() < 60; ++cycle) {
              const bool over = repeat > 0 && cycle >= repeat;
              want += std::string(static_cast<size_t>(wait), '-') +
                      std::string(static_cast<size_t>(warmup), over ? '-' : 'w') +
                      std::string(static_cast<size_t>(active - 1), over ? '-' : 'R') + (over ? "-" : "S");
            }
            want.resize(40);
            EXPECT_EQ(actions({skip, wait, warmup, active, repeat}, 40), want);
          }
        }
      }
    }
  }
}

TEST(ProfileSchedule, RefusesWhatIsNone) {
  for (const ProfileSchedule& wrong :
       {ProfileSchedule{.active = 0}, ProfileSchedule{.wait = -1}, ProfileSchedule{.warmup = -1},
        ProfileSchedule{.skip_first = -1}, ProfileSchedule{.repeat = -1}}) {
    EXPECT_THROW(check_profile_schedule(wrong), Error);
  }
}

}  // namespace
}  // namespace trireme::profile
