// Oracle: brute force. Every verdict of check_schedule() must equal that of a naive machine with zero-size buffers (schedule_oracle.cpp),
// on seeded schedules that are valid and on seeded mutations of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "plan/schedule_oracle.h"

namespace trireme::plan {
namespace {

/// All in tier soak, a tenth elsewhere.
uint64_t stride() {
  const char* soak = std::getenv("TRIREME_SOAK");
  return soak != nullptr && std::strcmp(soak, "full") == 0 ? 1 : 10;
}

TEST(ScheduleMutation, ValidSchedulesPassBoth) {
  for (uint64_t seed = 0; seed < 2000; seed += stride()) {
    const SeededSchedule seeded = seeded_schedule(seed);
    EXPECT_EQ(check_schedule(seeded.schedule, seeded.rules).reason(), "") << "seed " << seed << ' ' << seeded.name;
    EXPECT_EQ(brute_force_fault(seeded.schedule, seeded.rules), "") << "seed " << seed << ' ' << seeded.name;
  }
}

TEST(ScheduleMutation, VerdictEqualsBruteForceOn10000) {
  int valid = 0, faulty = 0, standing = 0;
  for (uint64_t seed = 0; seed < 10'000; seed += stride()) {
    SeededSchedule seeded = seeded_schedule(seed);
    std::mt19937_64 random(seed + 1'000'000);
    mutate(seeded, random);
    const Result<ScheduleStats> verdict = check_schedule(seeded.schedule, seeded.rules);
    const std::string brute = brute_force_fault(seeded.schedule, seeded.rules);
    ASSERT_EQ(verdict.ok(), brute.empty())
        << "seed " << seed << ' ' << seeded.name << "\n  check_schedule: " << verdict.reason()
        << "\n  brute force: " << brute << '\n'
        << write_schedule_csv(seeded.schedule);
    verdict.ok() ? ++valid : ++faulty;
    if (verdict.reason().find("a circle") != std::string::npos) ++standing;
    EXPECT_EQ(verdict.reason().rfind("[plan.check_schedule] ", 0), verdict.ok() ? std::string::npos : 0u);
  }
  std::printf("mutations: %d still valid, %d faulty, of these %d in a circle\n", valid, faulty, standing);
  // Neither verdict may be the rule, and real deadlocks must be among them, or this proves little.
  EXPECT_GT(valid * 8, faulty);
  EXPECT_GT(faulty * 8, valid);
  EXPECT_GT(standing * 100, valid + faulty);
}

}  // namespace
}  // namespace trireme::plan
