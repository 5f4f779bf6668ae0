// Oracle: closed form. A program asked for n ranks runs as n ranks, whoever starts it, and as none more.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launch/job_fixture.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SelfTest : public JobTest {
 protected:
  std::string self_ = TRIREME_BIN_DIR "/launch_self";
};

TEST_F(SelfTest, StartsItselfAsRanks) {
  const Finished done = run_program({self_, "3"}, options());
  EXPECT_EQ(done.exit_code, 0) << done.err;
  // Rank 0 is shown as it is, the others as lines of theirs.
  EXPECT_THAT(done.out, AllOf(HasSubstr(self_ + ": rank 0 of 3 told\n"), Not(HasSubstr("[rank0]")),
                              HasSubstr("[rank1]: " + self_ + ": rank 1 of 3 told\n"),
                              HasSubstr("[rank2]: " + self_ + ": rank 2 of 3 told\n"), HasSubstr("launcher: 0\n")));
}

// The order of the ranks' writes is certain, that of the launcher's reads of their pipes is not: rank 1's line may come first.
TEST_F(SelfTest, LinesOfOthersStartOnALineOfTheirOwn) {
  const Finished done = run_program({self_, "2", "bar"}, options());
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const std::string ranks_words = done.err.substr(done.err.find('\n') + 1);  // behind the line about the job
  EXPECT_THAT(ranks_words, ::testing::AnyOf("bar 10 %\n[rank1]: a word from rank 1\n\rbar 20 %\n",
                                            "[rank1]: a word from rank 1\nbar 10 %\rbar 20 %\n",
                                            "bar 10 %\rbar 20 %\n[rank1]: a word from rank 1\n"));
}

TEST_F(SelfTest, GivesTheFailedRanksCode) {
  const Finished done = run_program({self_, "2", "8"}, options());
  EXPECT_EQ(done.exit_code, 8);
  EXPECT_THAT(done.err, HasSubstr("rank 1 on "));
  EXPECT_EQ(tag_.await_none(), 0);
}

TEST_F(SelfTest, OneRankIsThisProcess) {
  const Finished done = run_program({self_, "1"}, options());
  EXPECT_EQ(done.out, self_ + ": rank 0 of 1 untold\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/runs"));
}

TEST_F(SelfTest, ARankOfAnotherLauncherStartsNothing) {
  const Finished ours = run({"--nproc-per-node", "2", self_, "3"});
  EXPECT_THAT(ours.out,
              AllOf(HasSubstr("rank 0 of 2 untold"), HasSubstr("rank 1 of 2 untold"), Not(HasSubstr("of 3"))));
}

TEST_F(SelfTest, RunsBelowMpirun) {
  if (run_program({"sh", "-c", "command -v mpirun"}).exit_code != 0) GTEST_SKIP() << "mpirun is not installed";
  Subprocess::Options as_root = options();
  as_root.env["OMPI_ALLOW_RUN_AS_ROOT"] = as_root.env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  const Finished done = run_program({"mpirun", "--oversubscribe", "-np", "3", self_, "2"}, as_root);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  for (const char* line : {"rank 0 of 3 untold", "rank 1 of 3 untold", "rank 2 of 3 untold"}) {
    EXPECT_THAT(done.out, HasSubstr(line));
  }
}

TEST_F(SelfTest, RunsBelowTorchrun) {
  const std::string venv = TRIREME_SOURCE_DIR "/.venv/bin/python";
  const std::string python = access(venv.c_str(), X_OK) == 0 ? venv : "python3";
  if (run_program({python, "-c", "import importlib.util as u; exit(u.find_spec('torch') is None)"}).exit_code != 0) {
    GTEST_SKIP() << python << " has no torch; ./dev build installs it into .venv";
  }
  // The agent serves the store, or (static) rank 0 does, on a port that torchrun wants to be told, at an address that is no loopback when the host has one.
  const std::string host = run_program({"hostname"}).out;
  const std::vector<std::vector<std::string>> modes{
      {"--standalone"},
      {"--master-addr", host.substr(0, host.find('\n')), "--master-port", std::to_string(20000 + getpid() % 10000)}};
  for (const std::vector<std::string>& mode : modes) {
    std::vector<std::string> words{python, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", "2"};
    words.insert(words.end(), mode.begin(), mode.end());
    words.insert(words.end(), {"--no-python", self_, "3"});
    const Finished done = run_program(words, options());
    EXPECT_EQ(done.exit_code, 0) << mode.front() << done.err;
    EXPECT_THAT(done.out, AllOf(HasSubstr("rank 0 of 2 untold"), HasSubstr("rank 1 of 2 untold")));
  }
}

TEST_F(SelfTest, NestedJobsEndTogether) {
  const auto job = start({"--nproc-per-node", "2", trireme_binary(), "run", "--log-dir", "inner", "--nproc-per-node",
                          "2", rank_program(), "wait"});
  ASSERT_TRUE(job->await_output("ready", 4)) << job->err();
  EXPECT_EQ(tag_.processes().size(), 2U + 2U * (2U + 2U));
  job->kill(SIGKILL);
  EXPECT_EQ(tag_.await_none(), 0);
}

TEST_F(SelfTest, ListensWhereItIsTold) {
  for (const char* address : {"[::1]", "localhost", "127.0.0.5"}) {
    const Finished done = run({"--nproc-per-node", "2", "--master-addr", address, rank_program(), "meet"});
    if (done.err.find("Cannot assign requested address") != std::string::npos) continue;  // no IPv6 here
    EXPECT_EQ(done.exit_code, 0) << address << done.err;
  }
}

// Counted rather than timed: what a program loads and sets up before it does anything shows in the pages that it touches, whatever the
// machine and its load. Measured: 133 and 348; a program with LibTorch touches more than ten thousand.
TEST_F(SelfTest, StartsLight) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers bring their own pages";
#endif
  const auto num_page_faults = [&](const std::vector<std::string>& words) {
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_CHILDREN, &before);
    EXPECT_EQ(run_program(words, options()).exit_code, 0);
    getrusage(RUSAGE_CHILDREN, &after);
    return after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt;
  };
  EXPECT_LT(num_page_faults({trireme_binary(), "--help"}), 600);
  EXPECT_LT(num_page_faults(command({"--nproc-per-node", "2", "true"})), 1500);
}

}  // namespace
}  // namespace trireme::testing
