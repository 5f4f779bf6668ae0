// Oracle: processes that the test itself has made, so that it knows what they are.
#include "launch/process_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace trireme::launch {
namespace {

class ProcessTreeTest : public testing::Test {
 protected:
  /// A child with a child, both paused; `middle_` and `leaf_` are their pids.
  ProcessTreeTest() {
    int ends[2];
    if (pipe(ends) != 0) return;
    middle_ = fork();
    if (middle_ == 0) {
      const pid_t leaf = fork();
      if (leaf == 0) {
        prctl(PR_SET_NAME, "a) (b");  // a name made to mislead a reader of /proc
        const pid_t self = getpid();
        if (write(ends[1], &self, sizeof(self)) < 0) _exit(1);
      }
      while (true) pause();
    }
    if (read(ends[0], &leaf_, sizeof(leaf_)) != sizeof(leaf_)) leaf_ = -1;
    close(ends[0]);
    close(ends[1]);
  }
  ~ProcessTreeTest() override {
    kill(leaf_, SIGKILL);
    kill(middle_, SIGKILL);
    waitpid(middle_, nullptr, 0);
  }
  pid_t middle_ = 0;
  pid_t leaf_ = 0;
};

TEST_F(ProcessTreeTest, FindsChildrenOfChildrenWhateverTheirNames) {
  std::vector<pid_t> pids;
  for (const ProcessInfo& process : descendants(getpid())) pids.push_back(process.pid);
  EXPECT_THAT(pids, testing::ElementsAre(middle_, leaf_));
  EXPECT_EQ(read_process(leaf_).name, "a) (b");
  EXPECT_EQ(read_process(leaf_).parent, middle_);
  EXPECT_GT(read_process(leaf_).start_ticks, 0U);
}

TEST_F(ProcessTreeTest, SignalsNobodyWhoOnlyHasTheNumber) {
  ProcessInfo earlier_owner = read_process(middle_);
  --earlier_owner.start_ticks;
  EXPECT_FALSE(signal_exactly(earlier_owner, SIGKILL));
  EXPECT_EQ(waitpid(middle_, nullptr, WNOHANG), 0) << "it was killed";
  EXPECT_TRUE(signal_exactly(read_process(middle_), SIGTERM));
}

TEST_F(ProcessTreeTest, TellsTheDyingFromTheLiving) {
  EXPECT_FALSE(is_exiting(middle_));
  EXPECT_FALSE(is_exiting(0)) << "not started yet";
  kill(middle_, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(middle_), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(is_exiting(middle_)) << "a zombie";
  waitpid(middle_, nullptr, 0);
  EXPECT_TRUE(is_exiting(middle_)) << "gone";
  EXPECT_TRUE(descendants(middle_).empty());
}

}  // namespace
}  // namespace trireme::launch
