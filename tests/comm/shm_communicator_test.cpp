// Oracle: closed form, and the contract that a death is named within a second by every rank that has a pending or next call.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/str.h"
#include "comm/algorithms/call_queue.h"
#include "comm/algorithms/communicator.h"
#include "comm/transport/shm/unix_socket.h"
#include "support/patience.h"
#include "support/rank_processes.h"

namespace trireme::comm {
namespace {

using ::testing::HasSubstr;
using trireme::test::kPatience;
using trireme::testing::RankProcesses;

CallInfo sum_call(uint64_t number, size_t count) {
  CallInfo info;
  info.call = number;
  info.op = OpKind::kAllReduce;
  info.dtype = DType::kF32;
  info.count = count;
  info.num_dims = 1;
  info.dims[0] = static_cast<int64_t>(count);
  return info;
}

// One all_reduce whose result is checked.
void reduce_and_check(Communicator& comm, uint64_t number, size_t count) {
  std::vector<float> x(count, static_cast<float>(comm.rank() + 1));
  const Segment all[] = {{x.data(), x.data(), count}};
  comm.all_reduce(sum_call(number, count), all);
  const int sum = comm.size() * (comm.size() + 1) / 2;
  const auto want = static_cast<float>(sum);
  for (const float got : x) {
    if (got != want) throw Error(ErrorKind::kInternal, str("got ", got, " in place of ", want));
  }
}

class ShmCommunicatorOf : public ::testing::TestWithParam<int> {};

TEST_P(ShmCommunicatorOf, ProcessesReduceExactly) {
  const int n = GetParam();
  RankProcesses ranks(n, [n](int rank, rendezvous::Store& store, const auto&) {
    const auto comm = make_shm_communicator(store, store, rank, n, {});
    uint64_t number = 0;
    for (const size_t count : {0, 1, 1000, 65'537, 1'000'003}) reduce_and_check(*comm, ++number, count);
  });
  for (const auto& outcome : ranks.join()) EXPECT_EQ(outcome.error, "");
}

// Large parts are read from the peer's own memory where the kernel allows it, small ones go through the slots; both must give the same.
TEST_P(ShmCommunicatorOf, ProcessesGatherAndTransposeExactly) {
  const int n = GetParam();
  RankProcesses ranks(n, [n](int rank, rendezvous::Store& store, const auto&) {
    const auto comm = make_shm_communicator(store, store, rank, n, {});
    uint64_t number = 0;
    for (const size_t count : {0, 5, 40'000, 300'001}) {
      std::vector<float> mine(count, static_cast<float>(rank + 1));
      std::vector<std::vector<float>> all(static_cast<size_t>(n), std::vector<float>(count));
      std::vector<void*> outs;
      for (auto& part : all) outs.push_back(part.data());
      CallInfo info = sum_call(++number, count);
      info.op = OpKind::kAllGather;
      comm->all_gather(info, mine.data(), outs, count * sizeof(float));
      for (int r = 0; r < n; ++r) {
        if (all[r] != std::vector<float>(count, static_cast<float>(r + 1)))
          throw Error(ErrorKind::kInternal, "all_gather differs");
      }
      // Rank s sends (s + 2 r) % 3 * count / 2 floats of value 10 s + r to rank r: some pairs nothing, some much.
      auto length = [&](int s, int r) { return static_cast<size_t>((s + 2 * r) % 3) * count / 2; };
      std::vector<std::vector<float>> to;
      std::vector<std::vector<float>> from;
      std::vector<Communicator::Block> ins;
      std::vector<Communicator::Block> blocks;
      for (int r = 0; r < n; ++r) {
        to.emplace_back(length(rank, r), static_cast<float>(10 * rank + r));
        from.emplace_back(length(r, rank), -1.0F);
      }
      for (int r = 0; r < n; ++r) {
        ins.push_back({to[r].data(), to[r].size() * sizeof(float)});
        blocks.push_back({from[r].data(), from[r].size() * sizeof(float)});
      }
      info.call = ++number;
      info.op = OpKind::kAllToAll;
      comm->all_to_all(info, ins, blocks);
      for (int r = 0; r < n; ++r) {
        if (from[r] != std::vector<float>(length(r, rank), static_cast<float>(10 * r + rank)))
          throw Error(ErrorKind::kInternal, "all_to_all differs");
      }
      std::fill(mine.begin(), mine.end(), -7.0F);  // at once: nobody may still be reading it
    }
  });
  for (const auto& outcome : ranks.join()) EXPECT_EQ(outcome.error, "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmCommunicatorOf, ::testing::Values(1, 2, 3, 5));

/// Gives this process a mount namespace of its own with a /dev/shm of 1 MiB; needs the right to make one.
bool make_dev_shm_tiny() {
  return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") == 0;
}

bool may_make_dev_shm_tiny() {
  const pid_t child = fork();
  if (child == 0) _exit(make_dev_shm_tiny() ? 0 : 1);
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

TEST(ShmCommunicator, WorksWithFewDescriptorsAndATinyDevShm) {
  const bool tiny = may_make_dev_shm_tiny();
  RankProcesses ranks(4, [tiny](int rank, rendezvous::Store& store, const auto&) {
    if (tiny && !make_dev_shm_tiny()) throw Error(ErrorKind::kIo, "the mount was allowed a moment ago");
    const rlimit limit = {64, 64};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) throw Error(ErrorKind::kIo, "setrlimit failed");
    const auto comm = make_shm_communicator(store, store, rank, 4, {});
    reduce_and_check(*comm, 1, 3'000'000);
  });
  for (const auto& outcome : ranks.join()) EXPECT_EQ(outcome.error, "");
  if (!tiny) GTEST_SKIP() << "no right to mount a small /dev/shm; few descriptors were tested, a tiny /dev/shm was not";
}

TEST(ShmCommunicator, KilledRankIsNamedWithinASecondByEveryOther) {
  for (const int victim : {0, 1, 2}) {
    RankProcesses ranks(3, [victim](int rank, rendezvous::Store& store, const auto& reach) {
      const auto comm = make_shm_communicator(store, store, rank, 3, {});
      for (uint64_t number = 1;; ++number) {
        if (number == 50) reach("running");
        if (number == 51 && rank == victim) {
          while (true) pause();  // in the middle of things, until it is killed
        }
        reduce_and_check(*comm, number, 10'000);
      }
    });
    for (int r = 0; r < 3; ++r) ranks.await_mark(r, "running");
    ranks.kill(victim);
    const auto outcomes = ranks.join();
    for (int r = 0; r < 3; ++r) {
      if (r == victim) {
        EXPECT_EQ(outcomes[r].signal, SIGKILL);
        continue;
      }
      EXPECT_EQ(outcomes[r].kind, ErrorKind::kPeerLost);
      EXPECT_THAT(outcomes[r].error, HasSubstr(str("rank ", victim, " died")));
      EXPECT_LT(outcomes[r].error_after_kill_s, 1.0);
    }
  }
}

TEST(ShmCommunicator, NextCallAfterADeathNamesItToo) {
  RankProcesses ranks(2, [](int rank, rendezvous::Store& store, const auto& reach) {
    const auto comm = make_shm_communicator(store, store, rank, 2, {});
    reduce_and_check(*comm, 1, 10);
    reach("reduced");
    if (rank == 1) {
      while (true) pause();
    }
    store.wait(std::vector<std::string>{"go"}, kPatience);
    // A small send would fit into the lane without anyone receiving it; it must not pretend to succeed.
    CallInfo info = sum_call(1, 1);
    info.op = OpKind::kSend;
    info.root = 1;
    float x = 0;
    comm->send(info, &x, sizeof(x));
  });
  for (int r = 0; r < 2; ++r) ranks.await_mark(r, "reduced");
  ranks.kill(1);
  // The death is complete when the parent sees it; only then may rank 0 make its next call.
  siginfo_t info = {};
  waitid(P_PID, static_cast<id_t>(ranks.pid(1)), &info, WEXITED | WNOWAIT);
  ranks.store().set("go", "1");
  const auto outcomes = ranks.join();
  EXPECT_EQ(outcomes[0].kind, ErrorKind::kPeerLost);
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 died"));
}

TEST(ShmCommunicator, DeathNoticeEndsTheWaitForAGroup) {
  RankProcesses ranks(2, [](int rank, rendezvous::Store& store, const auto& reach) {
    reach("started");
    if (rank == 1) {
      while (true) pause();
    }
    (void)make_shm_communicator(store, store, 0, 2, {});
  });
  for (int r = 0; r < 2; ++r) ranks.await_mark(r, "started");
  ranks.kill(1);
  ranks.store().set(rendezvous::kDeathNoticeKey, "rank 1 (pid 7): SIGKILL");
  const auto outcomes = ranks.join();
  EXPECT_EQ(outcomes[0].kind, ErrorKind::kPeerLost);
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 (pid 7): SIGKILL"));
  EXPECT_LT(outcomes[0].error_after_kill_s, 1.0);
}

// The group's first rank dies after it was found and before it hands over the memory: only the launcher knows that it died.
TEST(ShmCommunicator, FirstRankThatDiesWhileItServesIsNamed) {
  for (const bool listening : {true, false}) {
    RankProcesses ranks(2, [listening](int rank, rendezvous::Store& store, const auto& reach) {
      if (rank == 0) {
        UnixListener listener = listen_on_abstract_name();
        const std::string token = random_token();
        store.set("shm", str(listener.name, ' ', token, " 262144"));
        if (listening) {
          const Fd peer = accept_peer(listener, token, kPatience);
          reach("serving");
          while (true) pause();
        }
        listener = {};
        reach("serving");
        while (true) pause();
      }
      if (!listening) store.wait(std::vector<std::string>{"go"}, kPatience);
      (void)make_shm_communicator(store, store, 1, 2, {});
    });
    ranks.await_mark(0, "serving");
    ranks.kill(0);
    ranks.store().set("go", "1");
    ranks.store().set(rendezvous::kDeathNoticeKey, "rank 0 (pid 7): SIGKILL");
    const auto outcomes = ranks.join();
    EXPECT_EQ(outcomes[1].kind, ErrorKind::kPeerLost) << outcomes[1].error;
    EXPECT_THAT(outcomes[1].error, HasSubstr("rank 0 (pid 7): SIGKILL"));
    EXPECT_LT(outcomes[1].error_after_kill_s, 1.0);
  }
}

// A peer that dies between asking for the memory and getting it must not fail the first rank before its death is known.
TEST(UnixSocket, SendingToOneThatHungUpIsNoError) {
  const UnixListener listener = listen_on_abstract_name();
  const std::string token = random_token();
  (void)connect_to_peer(listener.name, token);
  const Fd peer = accept_peer(listener, token, kPatience);
  ASSERT_TRUE(peer);
  EXPECT_FALSE(send_descriptor(peer, listener.socket.get()));
}

// Rank 0 hears of the death first and leaves; what the others miss is rank 2, not rank 0.
TEST(ShmCommunicator, DeadRankIsNamedRatherThanTheOneThatLeftBecauseOfIt) {
  RankProcesses ranks(3, [](int rank, rendezvous::Store& store, const auto& reach) {
    auto comm = make_shm_communicator(store, store, rank, 3, {});
    reduce_and_check(*comm, 1, 10);
    reach("reduced");
    if (rank == 2) {
      while (true) pause();
    }
    store.wait(std::vector<std::string>{str("go", rank)}, kPatience);
    if (rank == 0) {
      comm.reset();
      reach("left");
      return;
    }
    reduce_and_check(*comm, 2, 10);
  });
  for (int r = 0; r < 3; ++r) ranks.await_mark(r, "reduced");
  ranks.kill(2);
  siginfo_t info = {};
  waitid(P_PID, static_cast<id_t>(ranks.pid(2)), &info, WEXITED | WNOWAIT);
  ranks.store().set("go0", "1");
  ranks.await_mark(0, "left");
  ranks.store().set("go1", "1");
  const auto outcomes = ranks.join();
  EXPECT_EQ(outcomes[1].kind, ErrorKind::kPeerLost);
  EXPECT_THAT(outcomes[1].error, HasSubstr("rank 2 died"));
}

TEST(ShmCommunicator, MismatchReachesEveryProcess) {
  RankProcesses ranks(3, [](int rank, rendezvous::Store& store, const auto&) {
    const auto comm = make_shm_communicator(store, store, rank, 3, {});
    reduce_and_check(*comm, 1, rank == 1 ? 100 : 200);
  });
  for (const auto& outcome : ranks.join()) {
    EXPECT_EQ(outcome.kind, ErrorKind::kMismatch);
    EXPECT_THAT(outcome.error,
                HasSubstr("rank 0 called all_reduce sum f32[200], rank 1 called all_reduce sum f32[100]"));
  }
}

TEST(ShmCommunicator, ExitedRankHasLeft) {
  RankProcesses ranks(2, [](int rank, rendezvous::Store& store, const auto&) {
    const auto comm = make_shm_communicator(store, store, rank, 2, {});
    reduce_and_check(*comm, 1, 10);
    if (rank == 0) reduce_and_check(*comm, 2, 10);
  });
  const auto outcomes = ranks.join();
  EXPECT_EQ(outcomes[0].kind, ErrorKind::kPeerLost);
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 has left the group"));
  EXPECT_EQ(outcomes[1].error, "");
}

// A child that a rank forks and that ends by exit() destroys the statics it inherited, a group among them.
TEST(ShmCommunicator, ForkedChildThatDestroysItsCopyDoesNotLeaveTheGroup) {
  RankProcesses ranks(2, [](int rank, rendezvous::Store& store, const auto&) {
    auto comm = make_shm_communicator(store, store, rank, 2, {});
    CallQueue queue("world", "test", nullptr);
    uint64_t number = 0;
    const auto reduce = [&] {
      queue.wait(queue.issue({}, [&](const CallInfo&) { reduce_and_check(*comm, ++number, 10); }));
    };
    reduce();  // from here on there is a progress thread, which the child does not get
    if (rank == 1) {
      const pid_t child = fork();
      if (child == 0) {
        std::destroy_at(&queue);
        comm->abort("this is the child");
        comm.reset();
        _exit(0);
      }
      int status = 0;
      if (waitpid(child, &status, 0) != child || status != 0) throw Error(ErrorKind::kInternal, "the child failed");
      // What the child may have left behind must be there before rank 0 looks.
      store.set("forked", "1");
    } else {
      store.wait(std::vector<std::string>{"forked"}, kPatience);
    }
    reduce();
  });
  for (const auto& outcome : ranks.join()) EXPECT_EQ(outcome.error, "");
}

// Oracle: closed form. Rank 1 does not come to call 2; rank 0 has no launcher that would tell, so it says itself who is late.
TEST(ShmCommunicator, ARankThatNobodyWatchesSaysWhoKeepsItWaiting) {
  for (const bool stop : {false, true}) {
    int said[2];
    ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
    const Fd from(said[0]);
    const Fd to(said[1]);
    RankProcesses ranks(2, [&](int rank, rendezvous::Store& store, const auto& reach) {
      if (rank == 0 && dup2(to.get(), STDERR_FILENO) < 0) throw Error(ErrorKind::kIo, "[test] dup2 failed");
      CommunicatorOptions options;
      options.hang_after = std::chrono::milliseconds(50);
      const auto comm = make_shm_communicator(store, store, rank, 2, options);
      reduce_and_check(*comm, 1, 8);
      reach("first");
      if (rank == 1) (void)store.get("go", kPatience);
      reduce_and_check(*comm, 2, 9);
    });
    ranks.await_mark(1, "first");
    if (stop) ranks.kill(1, SIGSTOP);
    const std::string want =
        str("in call 2, all_reduce sum f32[9], for rank 1 (last seen in call 1, all_reduce sum f32[8]",
            stop ? "; it is stopped (SIGSTOP))" : ")");
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::string text;
    while (text.find(want) == std::string::npos) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd ready = {.fd = from.get(), .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) <= 0) break;
      char piece[512];
      const ssize_t got = read(from.get(), piece, sizeof(piece));
      if (got <= 0) break;
      text.append(piece, static_cast<size_t>(got));
    }
    EXPECT_THAT(text, HasSubstr(want));
    ranks.store().set("go", "1");
    if (stop) ranks.kill(1, SIGCONT);
    for (const auto& outcome : ranks.join()) EXPECT_EQ(outcome.error, "");
  }
}

}  // namespace
}  // namespace trireme::comm
