// Oracle: closed form. The test decides which rank dies how; report, failure.json and exit code must say exactly that.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/job_fixture.h"
#include "launch/supervisor.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class FailureTest : public JobTest {};

/// From here on pidfd_open fails with EPERM, in this process and what it executes: an old container profile.
bool refuse_pidfd_open() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the number of the system call is the first word
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {static_cast<unsigned short>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(FailureTest, ARefusedPidfdOpenIsNamedAndNotTakenForAWantOfDescriptors) {
  const std::string program = trireme_binary();
  const std::string err = folder_ + "/err";
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || dup2(fd, 2) != 2 || chdir(folder_.c_str()) != 0) _exit(90);
    if (!refuse_pidfd_open()) _exit(91);
    execl(program.c_str(), "trireme", "run", "true", static_cast<char*>(nullptr));
    _exit(92);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 91) GTEST_SKIP() << "this kernel takes no seccomp filter";
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 4) << read("err");
  EXPECT_THAT(read("err"), AllOf(HasSubstr("pidfd_open is refused here"), Not(HasSubstr("RLIMIT_NOFILE"))));
}

// Exit code 2 promises that nothing was started (docs/errors.md).
TEST(StartFailure, OnlyTheFirstRanksProgramIsWrongUse) {
  for (const int reason : {ENOENT, EACCES, ENOEXEC, E2BIG}) {
    EXPECT_EQ(launch::kind_of_start_failure(0, 0, reason), ErrorKind::kConfig) << reason;
    EXPECT_EQ(launch::kind_of_start_failure(0, 1, reason), ErrorKind::kIo) << reason;
    EXPECT_EQ(launch::kind_of_start_failure(1, 0, reason), ErrorKind::kIo) << reason;
  }
  for (const int reason : {EAGAIN, ENOMEM, EMFILE, ENFILE, ENOSYS}) {
    EXPECT_EQ(launch::kind_of_start_failure(0, 0, reason), ErrorKind::kIo) << reason;
  }
}

// One worker dies, the rest wait for ever (case L03).
TEST_F(FailureTest, RankThatLeavesInMidLoopIsTheOnlyCause) {
  // Whoever waits for one of the grace times that were not asked for, or that need not be used up, is not done when the test gives up.
  Subprocess::Options long_grace = options();
  long_grace.env["TRIREME_REPORT_GRACE"] = "600";
  const Finished job = run_program(command({"--nproc-per-node", "4", "--report-grace", "0.1", "--grace", "600",
                                            rank_program(), "exit-at-step", "3"}),
                                   long_grace);
  EXPECT_EQ(job.exit_code, 3);
  EXPECT_THAT(job.err, ContainsRegex("\\[launch\\] FAILED, 1 of 4 ranks. First, [0-9:]+: rank 1 on [^ ]+, pid [0-9]+, "
                                     "exit code 3, after .*; it wrote nothing into run/logs\\."));
  EXPECT_THAT(job.err, HasSubstr("Then, after rank 1: ranks 0, 2, 3 ended by the launcher (SIGTERM)."));
  const auto report = failure();
  EXPECT_EQ(report["first"]["rank"], 1);
  EXPECT_EQ(report["first"]["exit_code"], 3);
  EXPECT_EQ(report["exit_code"], 3);
  for (const auto& end : report["ends"]) EXPECT_EQ(end["by_launcher"], end["rank"] != 1) << end;
  EXPECT_EQ(tag_.await_none(), 0);
}

TEST_F(FailureTest, TheReportNamesTheLogThatHasWords) {
  EXPECT_THAT(run({"sh", "-c", "echo words; exit 3"}).err, HasSubstr("; see run/logs/rank0.out.\n"));
  EXPECT_EQ(failure()["first"]["log"], "logs/rank0.out");
  EXPECT_THAT(run({"sh", "-c", "echo words >&2; echo more; exit 3"}).err, HasSubstr("; see run/logs/rank0.err.\n"));
  EXPECT_EQ(failure()["first"]["log"], "logs/rank0.err");
  // What an earlier job left in the file is no word of this one.
  EXPECT_THAT(run({"sh", "-c", "exit 3"}).err, HasSubstr("; it wrote nothing into run/logs.\n"));
  EXPECT_FALSE(failure()["first"].contains("log"));
}

TEST_F(FailureTest, RestartStartsAllFourAgain) {
  const Finished job =
      run({"--nproc_per_node=4", "--max_restarts=1", "--report-grace=0.1", rank_program(), "exit-at-step", "3"});
  EXPECT_EQ(job.exit_code, 0) << job.err;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(job.out, HasSubstr("[rank" + std::to_string(rank) + "]: finished after restart 1\n"));
  }
  EXPECT_THAT(job.err, AllOf(HasSubstr("rank 1"), HasSubstr("restart 1 of 1")));
}

// 2 would promise that nothing was started.
TEST_F(FailureTest, AProgramThatIsGoneAtTheRestartIsNoWrongUse) {
  std::ofstream(folder_ + "/once.sh") << "#!/bin/sh\nrm -f \"$0\"\nexit 7\n";
  chmod((folder_ + "/once.sh").c_str(), 0755);
  const Finished job = run({"--max-restarts", "1", "--report-grace", "0", "./once.sh"});
  EXPECT_EQ(job.exit_code, 1);
  EXPECT_THAT(job.err, HasSubstr("cannot execute './once.sh' as rank 0: No such file or directory"));
}

// Exit code by signal (case L09).
class SignalTest : public FailureTest, public ::testing::WithParamInterface<std::pair<int, const char*>> {};

TEST_P(SignalTest, NamesSignalAndGivesItAsExitCode) {
  const auto [signal, name] = GetParam();
  const Finished job =
      run({"--nproc-per-node", "3", "--report-grace", "0", rank_program(), "die", std::to_string(signal)});
  EXPECT_EQ(job.exit_code, 128 + signal);
  EXPECT_THAT(job.err, AllOf(HasSubstr(std::string("rank 1 on ")), HasSubstr(name), Not(HasSubstr("rank 0 on")),
                             Not(HasSubstr("rank 2 on"))));
  EXPECT_EQ(failure()["first"]["signal"], name);
  EXPECT_EQ(failure()["first"]["rank"], 1);
  if (signal == SIGKILL) {
    EXPECT_THAT(job.err, HasSubstr("OOM killer"));
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, SignalTest,
                         ::testing::Values(std::pair{SIGKILL, "SIGKILL"}, std::pair{SIGSEGV, "SIGSEGV"},
                                           std::pair{SIGABRT, "SIGABRT"}),
                         [](const auto& info) { return std::string(info.param.second); });

TEST_F(FailureTest, KernelsOomKillIsNamed) {
  const std::string group = "/sys/fs/cgroup/memory/trireme-test-" + std::to_string(getpid());
  if (mkdir(group.c_str(), 0755) != 0) GTEST_SKIP() << "no writable memory cgroup (version 1) here";
  std::ofstream(group + "/memory.limit_in_bytes") << (64 << 20);
  const Finished job =
      run({"--nproc-per-node", "2", "--report-grace", "0", rank_program(), "eat-memory", group + "/cgroup.procs"});
  rmdir(group.c_str());
  if (job.exit_code == 92) GTEST_SKIP() << "cannot join " << group;
  EXPECT_EQ(job.exit_code, 128 + SIGKILL);
  EXPECT_THAT(job.err, ContainsRegex("rank 1 on .*SIGKILL \\((kernel log: out of memory|the kernel's OOM killer|not "
                                     "sent by the launcher)"));
  if (access("/dev/kmsg", R_OK) == 0 && geteuid() == 0) {
    EXPECT_THAT(job.err, HasSubstr("kernel log: out of memory"));
  }
}

TEST_F(FailureTest, SurvivorsLearnOfItAndAreNoCause) {
  // All end by themselves, so the grace time is not waited for: the test would have given up by then.
  const Finished job = run({"--nproc-per-node", "4", "--report-grace", "600", rank_program(), "peers-see-it"});
  EXPECT_EQ(job.exit_code, 128 + SIGKILL);
  for (const int rank : {0, 2, 3}) {
    EXPECT_THAT(job.err, ContainsRegex("\\[rank" + std::to_string(rank) + "\\]: \\[test.wait\\] rank 1 on .*SIGKILL"));
  }
  EXPECT_THAT(job.err, HasSubstr("Then, after rank 1: ranks 0, 2, 3 exit code 5."));
  EXPECT_EQ(failure()["first"]["rank"], 1);
}

TEST_F(FailureTest, WrongProgramsAreRefusedBeforeAnythingStarts) {
  const Finished missing = run({"--nproc-per-node", "2", "no-such-program-anywhere"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("'no-such-program-anywhere' was not found in PATH"));
  std::ofstream(folder_ + "/plain.txt") << "text";
  EXPECT_EQ(run({"./plain.txt"}).exit_code, 2);
  EXPECT_THAT(run({"./plain.txt"}).err, HasSubstr("is not executable (chmod +x)"));
  std::ofstream(folder_ + "/bad.bin") << "#!/no/such/interpreter\n";
  chmod((folder_ + "/bad.bin").c_str(), 0755);
  const Finished bad = run({"./bad.bin"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("cannot execute './bad.bin' as rank 0: No such file or directory"));
}

}  // namespace
}  // namespace trireme::testing
