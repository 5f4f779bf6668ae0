// Oracle: processes that the test itself has made, so that it knows what they are.
#include "launch/process_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <iostream>
#include <new>
#include <string>
#include <thread>

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

/// A process that is always there and never the same: each forks its successor and ends.
class Relay {
 public:
  Relay() {
    const pid_t first = fork();
    if (first != 0) {
      waitpid(first, nullptr, 0);
      while (generations_->load() == 0) std::this_thread::yield();  // until then it has the name of this process
      return;
    }
    while (!stop_->load()) {
      if (fork() != 0) _exit(0);
      if (prctl(PR_SET_NAME, "relay") != 0) _exit(1);
      generations_->fetch_add(1);
    }
    ended_->store(true);
    _exit(0);
  }
  ~Relay() {
    stop_->store(true);
    while (!ended_->load()) std::this_thread::yield();
    munmap(shared_, 4096);
  }
  [[nodiscard]] int generations() const { return generations_->load(); }

 private:
  void* shared_ = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::atomic<bool>* stop_ = new (shared_) std::atomic<bool>(false);
  std::atomic<bool>* ended_ = new (static_cast<char*>(shared_) + 64) std::atomic<bool>(false);
  std::atomic<int>* generations_ = new (static_cast<char*>(shared_) + 128) std::atomic<int>(0);
};

// One of them lives at every moment, so a scan that finds none and claims to be complete is wrong.
TEST(ProcessesWithEnv, NeverClaimsThatNobodyIsLeftOfAFamilyThatForksAway) {
  // The environment as it was at exec is what /proc shows: one that this process shares with the relay.
  std::string assignment;
  for (char** entry = environ; *entry != nullptr && assignment.empty(); ++entry) {
    if (std::strncmp(*entry, "PATH=", 5) == 0) assignment = *entry;
  }
  ASSERT_FALSE(assignment.empty());
  const Relay relay;
  int empty = 0;
  for (int scan = 0; scan < 100 || relay.generations() < 100; ++scan) {
    const EnvScan seen = processes_with_env(assignment);
    const bool none =
        std::none_of(seen.found.begin(), seen.found.end(), [](const auto& p) { return p.name == "relay"; });
    if (none) ++empty;
    EXPECT_FALSE(none && seen.complete) << "scan " << scan;
  }
  std::cout << relay.generations() << " generations, missed by " << empty << " scans\n";
}

}  // namespace
}  // namespace trireme::launch
