// Oracle: the contract that a death is named within a second, here while a sub-group or a gradient arena is being made, with no launcher
// that would tell of it.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <functional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "base/str.h"
#include "comm/group_state.h"
#include "support/count_system_calls.h"
#include "support/patience.h"
#include "support/rank_processes.h"
#include "trireme/comm/collectives.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using trireme::testing::RankProcesses;

TEST(GroupProcs, DeathWhileASubgroupOrAnArenaIsMadeIsNamed) {
  for (const bool arena : {false, true}) {
    RankProcesses ranks(3, [&](int rank, rendezvous::Store& store, const auto& reach) {
      at::set_num_threads(1);
      const std::shared_ptr<rendezvous::Store> borrowed(&store, [](rendezvous::Store* /*not ours*/) {});
      comm::GroupOptions options;
      options.rank = rank;
      options.global_ranks = {0, 1, 2};
      options.meeting = comm::make_store_meeting(borrowed, borrowed);
      const comm::Group world = comm::make_group(options);
      reach("world");
      if (rank == 1) {
        while (true) pause();
      }
      if (arena) {
        (void)comm::share_memory(world, 4096);
      } else {
        (void)world.subgroup({2, 1, 0}, "inner");
      }
    });
    for (int r = 0; r < 3; ++r) ranks.await_mark(r, "world");
    ranks.kill(1);
    const auto outcomes = ranks.join();
    for (const int r : {0, 2}) {
      EXPECT_EQ(outcomes[r].kind, ErrorKind::kPeerLost);
      EXPECT_THAT(outcomes[r].error, HasSubstr(str("group '", arena ? "world" : "inner", "': rank 1 died")));
      EXPECT_LT(outcomes[r].error_after_kill_s, 1.0);
    }
  }
}

}  // namespace
}  // namespace trireme

// Oracle: counts. An all_reduce of 4 KiB through ProcessGroup makes no system call when its peer is there in time, and
// runs a bounded number of instructions. Whether the peer is there is up to the machine, so the best calls are looked at.

namespace trireme {
namespace {

using trireme::testing::RankProcesses;

/// Measured 7,687 with LibTorch 2.13 and g++ 12; a Future, a string or a second lock more would show.
constexpr int64_t kMostInstructions = 10'000;

comm::Group make_pair(rendezvous::Store& store, int rank) {
  at::set_num_threads(1);
  const std::shared_ptr<rendezvous::Store> borrowed(&store, [](rendezvous::Store* /*not ours*/) {});
  comm::GroupOptions options;
  options.rank = rank;
  options.global_ranks = {0, 1};
  options.timeout = trireme::test::kPatience;
  options.meeting = comm::make_store_meeting(borrowed, borrowed);
  options.trace = profile::open_collective_trace({.path = {}, .rank = rank});
  return comm::make_group(options);
}

// Calls `count` times; `sample` is asked before and after each call.
template <typename Sample>
std::vector<int64_t> costs(const comm::Group& group, int count, Sample&& sample) {
  std::vector<at::Tensor> tensors = {at::zeros({1024})};
  std::vector<int64_t> result;
  result.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const int64_t before = sample();
    group.c10d()->allreduce(tensors)->wait();
    result.push_back(sample() - before);
  }
  return result;
}

TEST(AllReduceCost, FourKibibytesMakeNoSystemCallWhenThePeerIsThere) {
  RankProcesses ranks(2, [](int rank, rendezvous::Store& store, const auto& /*reach*/) {
    const comm::Group group = make_pair(store, rank);
    (void)costs(group, 200, [] { return int64_t{0}; });
    const std::string refused = test::start_counting_system_calls();
    if (!refused.empty()) throw Error(ErrorKind::kUnavailable, refused);
    // The counter counts: this one is ours.
    const int64_t before = test::num_system_calls();
    (void)getppid();
    if (test::num_system_calls() != before + 1) throw Error(ErrorKind::kInternal, "the counter does not count");
    const std::vector<int64_t> calls = costs(group, 5000, [] { return test::num_system_calls(); });
    const auto free = std::count(calls.begin(), calls.end(), 0);
    // On a busy machine few calls find their peer in time; if the code itself made one, none would be free of them.
    if (free == 0) throw Error(ErrorKind::kInternal, "each of 5000 calls made a system call");
  });
  const auto outcomes = ranks.join();
  for (const auto& outcome : outcomes) {
    if (outcome.kind == ErrorKind::kUnavailable) GTEST_SKIP() << outcome.error;
  }
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

// Runs `call` in a child under single steps; returns how many instructions it took, the fewest of five tries.
int64_t count_instructions(const std::function<void(const std::function<void()>& mark)>& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    child([] { raise(SIGUSR1); });
    _exit(0);
  }
  int64_t fewest = -1;
  int64_t steps = 0;
  bool counting = false;
  int status = 0;
  while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
    if (WSTOPSIG(status) == SIGUSR1) {
      if (counting) fewest = fewest < 0 ? steps : std::min(fewest, steps);
      counting = !counting;
      steps = 0;
    }
    if (counting) ++steps;
    const bool ours = WSTOPSIG(status) == SIGUSR1 || WSTOPSIG(status) == SIGTRAP;
    ptrace(counting ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, nullptr, ours ? 0 : WSTOPSIG(status));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? fewest : -1;
}

// In a world of one there is nobody to wait for: what is counted is ours and the dispatcher's.
TEST(AllReduceCost, FourKibibytesTakeFewInstructions) {
  const int64_t nothing = count_instructions([](const auto& mark) {
    for (int i = 0; i < 5; ++i) {
      mark();
      mark();
    }
  });
  const int64_t call = count_instructions([](const auto& mark) {
    at::set_num_threads(1);
    const comm::Group world;
    std::vector<at::Tensor> tensors = {at::zeros({1024})};
    for (int i = 0; i < 105; ++i) {
      if (i >= 100) mark();
      world.c10d()->allreduce(tensors)->wait();
      if (i >= 100) mark();
    }
  });
  if (nothing < 0) GTEST_SKIP() << "this machine does not let us trace a child";
  ASSERT_GT(call, nothing);
  EXPECT_LT(call - nothing, kMostInstructions);
  RecordProperty("instructions", std::to_string(call - nothing));
}

}  // namespace
}  // namespace trireme
