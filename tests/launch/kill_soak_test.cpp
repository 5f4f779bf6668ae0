// Oracle: the kernel's process list, as in teardown_test. SIGKILL hits launcher, guardian or a rank at seeded moments from
// the start of the job on; whatever had been started by then must be gone.
#include <unistd.h>

#include <algorithm>
#include <random>

#include "launch/job_fixture.h"
#include "launch/process_tree.h"
#include "support/soak.h"

namespace trireme::testing {
namespace {

class KillSoakTest : public JobTest, public ::testing::WithParamInterface<int> {};

TEST_P(KillSoakTest, NothingIsLeft) {
  const int trials = whole_table() ? 300 : 30;
  constexpr unsigned kSeed = 20'261'130;
  std::mt19937 random(kSeed + static_cast<unsigned>(GetParam()));
  int hits = 0;
  for (int trial = 0; trial < trials; ++trial) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", trial " + std::to_string(trial));
    const auto job =
        start({"--nproc-per-node", "2", "--report-grace", "0", "--grace", "0.2", rank_program(), "children"});
    usleep(static_cast<useconds_t>(random() % 25'000));  // the seeded moment
    // 0: the launcher; 1: its child, the guardian; 2: whoever of the job comes last in the list, a rank or its child.
    launch::ProcessInfo victim = launch::read_process(job->pid());
    const auto below = launch::descendants(job->pid());
    if (GetParam() == 2) {
      // Never the guardian, although it stands alone in the list while the job starts slowly: the launcher is killed as well below, and
      // both at once is the one case that docs/cli.md leaves out.
      for (const auto& process : below) {
        if (process.parent != job->pid()) victim = process;
      }
    }
    if (GetParam() == 1) {
      for (const auto& process : below) {
        if (process.parent == job->pid()) victim = process;
      }
    }
    if (launch::signal_exactly(victim, SIGKILL)) ++hits;
    // A child of a rank may be missing without anybody's harm: then the job is still there.
    if (GetParam() == 2) job->kill(SIGKILL);
    EXPECT_NE(job->wait(), 0);
    ASSERT_EQ(tag_.await_none(), 0);
  }
  EXPECT_GT(hits, trials / 2);
}

INSTANTIATE_TEST_SUITE_P(Victims, KillSoakTest, ::testing::Values(0, 1, 2));

}  // namespace
}  // namespace trireme::testing
