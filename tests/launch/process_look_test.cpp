// Oracle: closed form for the text; for a live process what it was written to do.
#include "launch/process_look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "launch/process_tree.h"
#include "profile/rank_report.h"
#include "support/ptrace_allowed.h"

namespace trireme::launch {
namespace {

using ::testing::HasSubstr;

std::string words_of(const std::string& text) {
  ProcessLook look;
  look.state = 'S';
  look.threads = parse_stacks(text);
  return look.words();
}

TEST(ProcessLook, TellsWhatTheMainThreadDoes) {
  EXPECT_EQ(words_of("memory VmHWM 2\nthread 7 S train hrtimer_nanosleep\n  #0 clock_nanosleep libc.so.6\n"
                     "  #1 (anonymous namespace)::load(std::vector<int (*)(char)> const&, int) train loader.cpp:41\n  "
                     "#2 main train\n"
                     "  #3 ? libc.so.6\n  #4 _start train\n"),
            "sleeps (clock_nanosleep) in load at loader.cpp:41, called by main");
  EXPECT_EQ(words_of("thread 7 S train futex\n  #0 ? libc.so.6\n  #1 pthread_mutex_lock libc.so.6\n  #2 Pool::take() "
                     "libpool.so\n"),
            "waits for a mutex (pthread_mutex_lock) in Pool::take");
  EXPECT_EQ(words_of("thread 7 R train -\n  #0 Sum::operator()(int) train sum.h:3\n"),
            "computes in Sum::operator() at sum.h:3");
}

TEST(ProcessLook, AnyTextMayComeIn) {
  for (const char* text :
       {"", "thread", "thread x y", "#0", "  #0 a", "thread 1 S n -\n  #0", "thread 1 S n -\n  #0 a\n", "\n\n"}) {
    EXPECT_NE(words_of(text), "") << text;
  }
}

class LiveLookTest : public ::testing::Test {
 protected:
  LiveLookTest() {
    child_ = fork();
    if (child_ == 0) {
      while (true) pause();
    }
    while (read_process(child_).state != 'S') sched_yield();  // nothing tells that a process has gone to sleep
  }
  ~LiveLookTest() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  pid_t child_ = 0;
};

TEST_F(LiveLookTest, ShowsTheStackAndLeavesTheProcessAsItWas) {
  const std::string program = profile::find_stacks_program();
  if (program.empty()) GTEST_SKIP() << "trireme-stacks was not built: libdw-dev is not installed";
  if (const std::string why = test::ptrace_refused(); !why.empty()) GTEST_SKIP() << why;
  const ProcessLook look = look_at_process(child_, program, std::chrono::seconds(60));
  ASSERT_FALSE(look.threads.empty() || look.threads[0].frames.empty()) << look.problem;
  EXPECT_THAT(look.words(), HasSubstr("waits for a signal (pause)"));
  EXPECT_GT(look.memory.most_mb, 0);
  kill(child_, SIGSTOP);
  waitpid(child_, nullptr, WUNTRACED);
  EXPECT_TRUE(look_at_process(child_, program, std::chrono::seconds(60)).stopped());
  EXPECT_EQ(read_process(child_).state, 'T') << "it is not stopped any more";
}

TEST_F(LiveLookTest, WithoutTheProgramOrTimeItSaysWhy) {
  const ProcessLook without = look_at_process(child_, "", std::chrono::seconds(1));
  EXPECT_THAT(without.words(), HasSubstr("waits in its own code (no stack: trireme-stacks was not found"));
  EXPECT_THAT(look_at_process(child_, "/bin/cat", std::chrono::milliseconds(0)).words(),
              HasSubstr("the time for it was over"));
  EXPECT_THAT(look_at_process(child_, "/no/such/program", std::chrono::seconds(9)).words(), HasSubstr("No such file"));
}

TEST(ProcessLook, OneThatIsGoneIsGone) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(look_at_process(child, profile::find_stacks_program(), std::chrono::seconds(1)).gone());
}

}  // namespace
}  // namespace trireme::launch
