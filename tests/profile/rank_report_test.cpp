// Oracle: closed form. A process is made to end, or is asked, in a known function; its report must name that function and its memory, and
// the process must end as it would without us.
#include "profile/rank_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <thread>

#include "support/patience.h"
#include "support/ptrace_allowed.h"
#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme::profile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

__attribute__((noinline)) void go_astray() {
  volatile int* nowhere = nullptr;
  *nowhere = 1;
}

__attribute__((noinline)) void give_up() { std::abort(); }

/// Writes a byte when it is there.
__attribute__((noinline)) void wait_for_ever(int ready) {
  if (write(ready, "x", 1) != 1) _exit(1);
  while (true) pause();
}

class RankReportTest : public ::testing::Test {
 protected:
  RankReportTest() {
    setenv("TRIREME_STACKS_PROGRAM", TRIREME_BIN_DIR "/trireme-stacks", 1);
    unsetenv("TRIREME_REPORT_SIGNAL");
  }
  ~RankReportTest() override {
    unsetenv("TRIREME_STACKS_PROGRAM");
    unsetenv("TRIREME_REPORT_SIGNAL");
  }
  static bool has_stacks() { return access(TRIREME_BIN_DIR "/trireme-stacks", X_OK) == 0; }

  /// The wait status of a child that prepares its reports and runs this.
  pid_t start(const std::function<void()>& body) const {
    const pid_t child = fork();
    if (child != 0) return child;
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    try {
      prepare_rank_reports(folder_.path(), 3);
      body();
    } catch (const std::exception&) {
      _exit(42);
    }
    _exit(0);
  }
  static int status_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }
  [[nodiscard]] std::string report() const {
    std::ifstream file(folder_.path() + "/reports/rank3.txt");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  test::TempDir folder_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SKIP_BELOW_SANITIZERS() GTEST_SKIP() << "the sanitizer has handlers of its own, which we leave alone"
#else
#define SKIP_BELOW_SANITIZERS() static_cast<void>(0)
#endif

TEST_F(RankReportTest, AFatalSignalLeavesStacksAndMemoryAndEndsTheProcessAsBefore) {
  SKIP_BELOW_SANITIZERS();
  if (!has_stacks()) GTEST_SKIP() << "trireme-stacks was not built: libdw-dev is not installed";
  if (const std::string why = test::ptrace_refused(); !why.empty()) GTEST_SKIP() << why;
  const int status = status_of(start(go_astray));
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_THAT(report(), AllOf(HasSubstr("rank 3 pid "), HasSubstr("go_astray"), HasSubstr("memory VmHWM ")));
}

TEST_F(RankReportTest, AnAbortToo) {
  SKIP_BELOW_SANITIZERS();
  if (!has_stacks()) GTEST_SKIP() << "trireme-stacks was not built: libdw-dev is not installed";
  if (const std::string why = test::ptrace_refused(); !why.empty()) GTEST_SKIP() << why;
  const int status = status_of(start(give_up));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_THAT(report(), HasSubstr("give_up"));
}

TEST_F(RankReportTest, OnAThreadAsWell) {
  SKIP_BELOW_SANITIZERS();
  if (!has_stacks()) GTEST_SKIP() << "trireme-stacks was not built: libdw-dev is not installed";
  if (const std::string why = test::ptrace_refused(); !why.empty()) GTEST_SKIP() << why;
  const int status = status_of(start([] { std::thread(go_astray).join(); }));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_THAT(report(), HasSubstr("go_astray"));
}

TEST_F(RankReportTest, WithoutTheProgramTheFailingThreadIsShownFromInside) {
  SKIP_BELOW_SANITIZERS();
  setenv("TRIREME_STACKS_PROGRAM", "/no/such/program", 1);
  const int status = status_of(start(give_up));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_THAT(report(), AllOf(HasSubstr("profile_procs"), HasSubstr("VmHWM:")));
}

TEST_F(RankReportTest, ASignalAsksForAReportAndTheProcessGoesOn) {
  if (!has_stacks()) GTEST_SKIP() << "trireme-stacks was not built: libdw-dev is not installed";
  if (const std::string why = test::ptrace_refused(); !why.empty()) GTEST_SKIP() << why;
  setenv("TRIREME_REPORT_SIGNAL", "USR1", 1);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = start([&] { wait_for_ever(ready[1]); });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGUSR1);
  const auto deadline = std::chrono::steady_clock::now() + test::kPatience;
  while (report().empty() && std::chrono::steady_clock::now() < deadline) usleep(1000);
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "it has ended";
  EXPECT_THAT(report(), ::testing::AnyOf(HasSubstr("wait_for_ever"), HasSubstr("no stack")));
  kill(child, SIGKILL);
  EXPECT_EQ(WTERMSIG(status_of(child)), SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(RankReportTest, AHandlerThatIsThereStays) {
  setenv("TRIREME_REPORT_SIGNAL", "SIGUSR1", 1);
  const pid_t child = fork();
  if (child == 0) {
    static volatile sig_atomic_t calls = 0;
    for (const int signal : {SIGUSR1, SIGABRT}) ::signal(signal, [](int) { calls = calls + 1; });
    prepare_rank_reports(folder_.path(), 3);
    raise(SIGUSR1);
    raise(SIGABRT);
    _exit(calls == 2 ? 0 : 1);
  }
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(report(), "");
}

TEST_F(RankReportTest, ASignalThatDoesNotExistIsRefused) {
  for (const char* name : {"SIGNONE", "KILL", "9", "-1"}) {
    setenv("TRIREME_REPORT_SIGNAL", name, 1);
    const int status = status_of(start([] {}));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << name;
  }
}

}  // namespace
}  // namespace trireme::profile
