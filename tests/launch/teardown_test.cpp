// Oracle: the kernel's process list. Every process of the job carries a tag in its environment; before the blow the
// expected number of them must be there, after it none.
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "launch/job.h"
#include "launch/job_fixture.h"
#include "launch/process_tree.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Two ranks with three children each, guardian and launcher.
constexpr int kNumProcesses = 2 * 4 + 2;

class TeardownTest : public JobTest {
 protected:
  [[nodiscard]] std::unique_ptr<Subprocess> start_with_children() {
    auto job = start({"--nproc-per-node", "2", "--grace", "0.3", rank_program(), "children"});
    EXPECT_TRUE(job->await_output("ready", 2)) << job->err();
    EXPECT_EQ(tag_.processes().size(), static_cast<size_t>(kNumProcesses));
    return job;
  }
  static void kill_guardian_of(const Subprocess& job) {
    const auto below = launch::descendants(job.pid());
    const auto guardian =
        std::find_if(below.begin(), below.end(), [&](const auto& process) { return process.parent == job.pid(); });
    ASSERT_NE(guardian, below.end());
    ASSERT_TRUE(launch::signal_exactly(*guardian, SIGKILL));
  }
};

// Orphaned grandchildren (case L07).
TEST_F(TeardownTest, KilledLauncherLeavesNothing) {
  const auto job = start_with_children();
  job->kill(SIGKILL);
  EXPECT_EQ(job->wait(), 128 + SIGKILL);
  EXPECT_EQ(tag_.await_none(), 0);
}

TEST_F(TeardownTest, KilledGuardianLeavesNothing) {
  const auto job = start_with_children();
  kill_guardian_of(*job);
  EXPECT_NE(job->wait(), 0);
  EXPECT_THAT(job->err(), HasSubstr("the guardian process"));
  EXPECT_EQ(tag_.await_none(), 0);
}

// A daemon without the job's mark, in a session of its own: the launcher cannot know it, but need not wait for it either.
TEST_F(TeardownTest, WhoHidesFromAJobWithoutGuardianIsNotWaitedFor) {
  const auto job = start(
      {"sh", "-c", "(setsid env -i sh -c 'echo hidden $$; exec sleep 100000' &); echo orphaned; exec sleep 100000"});
  ASSERT_TRUE(job->await_output("orphaned")) << job->err();
  ASSERT_TRUE(job->await_output("hidden ")) << job->err();
  const pid_t hidden = std::atoi(job->out().substr(job->out().find("hidden ") + 7).c_str());
  ASSERT_GT(hidden, 0);
  kill_guardian_of(*job);
  EXPECT_EQ(job->wait(), 128 + SIGKILL);
  EXPECT_THAT(job->err(), HasSubstr("a process outside the job still holds the output of rank 0"));
  EXPECT_EQ(kill(hidden, SIGKILL), 0);
}

TEST_F(TeardownTest, KilledGuardianTakesAJobWithinTheJobAlong) {
  const auto job = start({trireme_binary(), "run", "--run-dir", folder_ + "/inner", rank_program(), "children"});
  ASSERT_TRUE(job->await_output("ready")) << job->err();
  kill_guardian_of(*job);
  EXPECT_EQ(job->wait(), 128 + SIGKILL);
  EXPECT_EQ(tag_.await_none(), 0);
}

class InterruptTest : public TeardownTest, public ::testing::WithParamInterface<int> {};

TEST_P(InterruptTest, SignalToTheLauncherEndsAll) {
  const auto job = start_with_children();
  job->kill(GetParam());
  EXPECT_EQ(job->wait(), 128 + GetParam());
  EXPECT_EQ(tag_.await_none(), 0);
  EXPECT_THAT(job->err(), HasSubstr("passed on to the ranks"));
  EXPECT_THAT(job->err(), Not(HasSubstr("FAILED")));
}

INSTANTIATE_TEST_SUITE_P(Signals, InterruptTest, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST_F(TeardownTest, SecondInterruptDoesNotWaitForTheGraceTime) {
  const auto job = start({"--nproc-per-node", "2", "--grace", "600", rank_program(), "save-on-term", "600000", "x"});
  ASSERT_TRUE(job->await_output("ready", 2));
  job->kill(SIGTERM);
  ASSERT_TRUE(job->await_output("passed on to the ranks"));
  job->kill(SIGTERM);
  EXPECT_EQ(job->wait(), 128 + SIGTERM);
  EXPECT_EQ(tag_.await_none(), 0);
}

TEST_F(TeardownTest, DeadRankTakesTheWholeJobWithIt) {
  const Finished job = run({"--nproc-per-node", "2", "--report-grace", "0", rank_program(), "children", "9"});
  EXPECT_EQ(job.exit_code, 9);
  EXPECT_EQ(tag_.await_none(), 0);
}

TEST_F(TeardownTest, WhatASuccessfulJobLeavesRunningIsEndedAndNamed) {
  const Finished job = run({"--nproc-per-node", "2", rank_program(), "children", "0"});
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_THAT(job.err, HasSubstr("ended what the ranks left running: launch_rank (pid "));
  EXPECT_EQ(tag_.await_none(), 0);
}

// Grace time on SIGTERM (case L05, with shorter times).
TEST_F(TeardownTest, GraceTimeLetsRanksSave) {
  const auto job = start({"--nproc-per-node", "2", "--grace", "30", rank_program(), "save-on-term", "200", "saved"});
  ASSERT_TRUE(job->await_output("ready", 2));
  job->kill(SIGTERM);
  EXPECT_EQ(job->wait(), 7) << "the ranks' own exit code";
  EXPECT_EQ(access((folder_ + "/saved0").c_str(), F_OK), 0);
  EXPECT_EQ(access((folder_ + "/saved1").c_str(), F_OK), 0);
}

TEST_F(TeardownTest, TooShortAGraceTimeIsTold) {
  Subprocess::Options with_env = options();
  with_env.env["TRIREME_GRACE"] = "0.1";
  Subprocess job(command({"--nproc-per-node", "2", rank_program(), "save-on-term", "60000", "saved"}), with_env);
  ASSERT_TRUE(job.await_output("ready", 2));
  job.kill(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_THAT(job.err(), HasSubstr("ranks 0, 1 did not end within 0.1 s of SIGTERM: SIGKILL"));
  EXPECT_NE(access((folder_ + "/saved0").c_str(), F_OK), 0);
}

// It must never kill what it did not start: children that its caller already had, and orphans of others.
TEST_F(TeardownTest, ChildrenOfTheCallerAreLeftAlone) {
  const pid_t bystander = fork();
  if (bystander == 0) {
    while (true) pause();
  }
  launch::JobSpec spec;
  spec.num_ranks = 2;
  spec.command = {rank_program(), "children", "9"};
  spec.run_dir = run_dir();
  spec.announce = false;
  spec.report_grace = std::chrono::milliseconds(0);
  spec.env.insert(tag_.variable());
  const launch::JobResult result = launch::run_job(spec);
  EXPECT_EQ(result.exit_code, 9);
  ASSERT_TRUE(result.first.has_value());
  EXPECT_EQ(result.first->rank, 1);
  EXPECT_EQ(tag_.await_none(), 0);
  EXPECT_EQ(waitpid(bystander, nullptr, WNOHANG), 0) << "it has ended";
  kill(bystander, SIGKILL);
  waitpid(bystander, nullptr, 0);
}

TEST_F(TeardownTest, CallerIsAsItWasBefore) {
  const auto num_descriptors = [] {
    int count = 0;
    DIR* folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
    return count;
  };
  const int before = num_descriptors();
  sigset_t mask_before;
  sigprocmask(SIG_SETMASK, nullptr, &mask_before);
  launch::JobSpec spec;
  spec.command = {"true"};
  spec.run_dir = run_dir();
  spec.announce = false;
  EXPECT_EQ(launch::run_job(spec).exit_code, 0);
  sigset_t mask_after;
  sigprocmask(SIG_SETMASK, nullptr, &mask_after);
  for (const int signal : spec.forwarded_signals) {
    EXPECT_EQ(sigismember(&mask_after, signal), sigismember(&mask_before, signal));
  }
  EXPECT_EQ(num_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

}  // namespace
}  // namespace trireme::testing
