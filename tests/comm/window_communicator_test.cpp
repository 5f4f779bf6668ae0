// Oracle: closed forms with exactly representable values, over ranks that are threads on one mapping.
#include "comm/algorithms/window_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/str.h"
#include "comm/transport/inproc/inproc_memory.h"
#include "support/pulse_clock.h"
#include "support/rank_threads.h"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using trireme::test::PulseClock;
using trireme::testing::run_rank_threads;

CallInfo call(uint64_t number, OpKind op, size_t count, int root = -1) {
  CallInfo info;
  info.call = number;
  info.op = op;
  info.dtype = DType::kF32;
  info.root = root;
  info.count = count;
  info.num_dims = 1;
  info.dims[0] = static_cast<int64_t>(count);
  return info;
}

void expect_no_errors(const std::vector<trireme::testing::RankOutcome>& outcomes) {
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

class EveryShape : public ::testing::TestWithParam<std::tuple<int, size_t>> {};

TEST_P(EveryShape, AllReduceOfScatteredSegmentsSumsExactly) {
  const auto [n, count] = GetParam();
  expect_no_errors(run_rank_threads(n, {}, [&, n = n, count = count](Communicator& comm) {
    std::vector<float> x(count);
    for (uint64_t round = 1; round <= 3; ++round) {
      for (size_t i = 0; i < count; ++i)
        x[i] = static_cast<float>(i % 1000 * static_cast<size_t>(n) + static_cast<size_t>(comm.rank()));
      // Three pieces, one of them empty, at odd boundaries.
      const size_t a = count / 3;
      const Segment pieces[] = {
          {x.data(), x.data(), a}, {x.data(), x.data(), 0}, {x.data() + a, x.data() + a, count - a}};
      comm.all_reduce(call(round, OpKind::kAllReduce, count), pieces);
      for (size_t i = 0; i < count; ++i) {
        const auto want =
            static_cast<float>(i % 1000 * static_cast<size_t>(n * n) + static_cast<size_t>(n * (n - 1) / 2));
        ASSERT_EQ(x[i], want) << "element " << i << " round " << round;
      }
    }
  }));
}

TEST_P(EveryShape, BroadcastCopiesTheRoot) {
  const auto [n, count] = GetParam();
  expect_no_errors(run_rank_threads(n, {}, [&, n = n, count = count](Communicator& comm) {
    for (int root = 0; root < n; ++root) {
      std::vector<float> x(count);
      std::iota(x.begin(), x.end(), static_cast<float>(comm.rank() * 7));
      comm.broadcast(call(static_cast<uint64_t>(root) + 1, OpKind::kBroadcast, count, root), x.data(),
                     count * sizeof(float));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(x[i], static_cast<float>(root * 7) + static_cast<float>(i));
    }
  }));
}

TEST_P(EveryShape, AllGatherThenReduceScatterAgree) {
  const auto [n, count] = GetParam();
  expect_no_errors(run_rank_threads(n, {}, [&, n = n, count = count](Communicator& comm) {
    std::vector<float> mine(count, static_cast<float>(comm.rank() + 1));
    std::vector<std::vector<float>> all(static_cast<size_t>(n), std::vector<float>(count));
    std::vector<void*> outs;
    std::vector<const void*> ins;
    for (auto& part : all) outs.push_back(part.data());
    for (auto& part : all) ins.push_back(part.data());
    comm.all_gather(call(1, OpKind::kAllGather, count), mine.data(), outs, count * sizeof(float));
    for (int r = 0; r < n; ++r) ASSERT_EQ(all[r], std::vector<float>(count, static_cast<float>(r + 1)));
    // Part r is r + 1 on all n ranks, so rank r's reduced part is n (r + 1).
    comm.reduce_scatter(call(2, OpKind::kReduceScatter, count * static_cast<size_t>(n)), ins, mine.data(), count);
    ASSERT_EQ(mine, std::vector<float>(count, static_cast<float>(n * (comm.rank() + 1))));
  }));
}

TEST_P(EveryShape, AllToAllTransposesUnevenBlocks) {
  const auto [n, count] = GetParam();
  expect_no_errors(run_rank_threads(n, {}, [&, n = n, count = count](Communicator& comm) {
    // Rank s sends (s + 2 r) % 3 * count / 2 floats of value 10 s + r to rank r.
    auto length = [&](int s, int r) { return static_cast<size_t>((s + 2 * r) % 3) * count / 2; };
    std::vector<std::vector<float>> to;
    std::vector<std::vector<float>> from;
    std::vector<Communicator::Block> ins;
    std::vector<Communicator::Block> outs;
    for (int r = 0; r < n; ++r) {
      to.emplace_back(length(comm.rank(), r), static_cast<float>(10 * comm.rank() + r));
      from.emplace_back(length(r, comm.rank()), -1.0F);
    }
    for (int r = 0; r < n; ++r) {
      ins.push_back({to[r].data(), to[r].size() * sizeof(float)});
      outs.push_back({from[r].data(), from[r].size() * sizeof(float)});
    }
    comm.all_to_all(call(1, OpKind::kAllToAll, count), ins, outs);
    for (int r = 0; r < n; ++r)
      ASSERT_EQ(from[r], std::vector<float>(length(r, comm.rank()), static_cast<float>(10 * r + comm.rank())));
  }));
}

TEST_P(EveryShape, MessagesArriveInOrderAroundTheRing) {
  const auto [n, count] = GetParam();
  if (n == 1) {  // nobody to send to: refused, not a hang
    float x = 0;
    EXPECT_THROW(make_inproc_communicators(1, {})[0]->send(call(1, OpKind::kSend, 1, 0), &x, sizeof(x)), Error);
    return;
  }
  expect_no_errors(run_rank_threads(n, {}, [&, n = n, count = count](Communicator& comm) {
    const int next = (comm.rank() + 1) % n;
    const int previous = (comm.rank() + n - 1) % n;
    for (uint64_t round = 1; round <= 5; ++round) {
      const std::vector<float> out(count, static_cast<float>(comm.rank()) + static_cast<float>(round) * 100);
      std::vector<float> in(count, -1.0F);
      // Rank 0 receives first, so the ring cannot rely on sends that return before they are received.
      auto send = [&] { comm.send(call(round, OpKind::kSend, count, next), out.data(), count * sizeof(float)); };
      auto recv = [&] { comm.recv(call(round, OpKind::kRecv, count, previous), in.data(), count * sizeof(float)); };
      if (comm.rank() == 0) {
        send();
        recv();
      } else {
        recv();
        send();
      }
      ASSERT_EQ(in, std::vector<float>(count, static_cast<float>(previous) + static_cast<float>(round) * 100));
    }
  }));
}

INSTANTIATE_TEST_SUITE_P(Shapes, EveryShape,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 7),
                                            ::testing::Values(0, 1, 5, 1000, 65'537, 300'001)));

TEST(WindowCommunicator, MismatchIsToldToEveryRankWithBothCalls) {
  const auto outcomes = run_rank_threads(3, {}, [](Communicator& comm) {
    std::vector<float> x(409'600);
    const Segment all[] = {{x.data(), x.data(), x.size()}};
    comm.all_reduce(call(1, OpKind::kAllReduce, x.size()), all);
    const size_t count = comm.rank() == 2 ? 409'598 : 409'600;
    const Segment some[] = {{x.data(), x.data(), count}};
    EXPECT_THROW(comm.all_reduce(call(2, OpKind::kAllReduce, count), some), Error);
    comm.barrier(call(3, OpKind::kBarrier, 0));  // the next call must say the same
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, ErrorKind::kMismatch);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("rank 0 called all_reduce sum f32[409600]"),
                                     HasSubstr("rank 2 called all_reduce sum f32[409598]"), HasSubstr("call 2"),
                                     HasSubstr("the shapes differ")));
  }
}

TEST(WindowCommunicator, EachKindOfDifferenceIsNamed) {
  struct Difference {
    std::function<void(CallInfo&)> change;
    const char* words;
  };
  const Difference differences[] = {
      {[](CallInfo& info) { info.op = OpKind::kBarrier; }, "the operations differ"},
      {[](CallInfo& info) { info.dtype = DType::kF64; }, "the dtypes differ"},
      {[](CallInfo& info) { info.reduce = ReduceKind::kMax; }, "the reductions differ"},
      {[](CallInfo& info) { info.root = 1; }, "the roots differ"},
      {[](CallInfo& info) { info.num_dims = 2, info.dims = {3, 2}; }, "f32[3, 2]"},
  };
  for (const Difference& difference : differences) {
    const auto outcomes = run_rank_threads(2, {}, [&](Communicator& comm) {
      std::vector<double> x(6);
      CallInfo info = call(1, OpKind::kAllReduce, 6);
      info.num_dims = 2;
      info.dims = {2, 3};
      if (comm.rank() == 1) difference.change(info);
      const Segment all[] = {{x.data(), x.data(), 6}};
      comm.all_reduce(info, all);
    });
    for (const auto& outcome : outcomes) {
      EXPECT_EQ(outcome.kind, ErrorKind::kMismatch);
      EXPECT_THAT(outcome.error, HasSubstr(difference.words));
    }
  }
}

TEST(WindowCommunicator, UnequalSplitsOfAllToAllAreToldOnBothSides) {
  const auto outcomes = run_rank_threads(2, {}, [](Communicator& comm) {
    std::vector<float> in(8);
    std::vector<float> out(8);
    const size_t expected = comm.rank() == 1 ? 12 : 16;
    const Communicator::Block ins[] = {{in.data(), 16}, {in.data() + 4, 16}};
    const Communicator::Block outs[] = {{out.data(), expected}, {out.data() + 4, 16}};
    comm.all_to_all(call(1, OpKind::kAllToAll, 8), ins, outs);
    comm.barrier(call(2, OpKind::kBarrier, 0));
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, ErrorKind::kMismatch);
    EXPECT_THAT(outcome.error, HasSubstr("rank 0 sends 16 bytes to rank 1, which expects 12"));
  }
}

TEST(WindowCommunicator, MessageOfAnotherSizeIsRefusedOnBothSides) {
  const auto outcomes = run_rank_threads(2, {}, [](Communicator& comm) {
    std::vector<float> x(8);
    if (comm.rank() == 0) {
      comm.send(call(1, OpKind::kSend, 8, 1), x.data(), 32);
      comm.recv(call(1, OpKind::kRecv, 1, 1), x.data(), 4);
    } else {
      comm.recv(call(1, OpKind::kRecv, 4, 0), x.data(), 16);
    }
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, ErrorKind::kMismatch);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("send f32[8]"), HasSubstr("recv f32[4]")));
  }
}

TEST(WindowCommunicator, TimeoutNamesTheLateRankByItsGlobalNumber) {
  CommunicatorOptions options;
  options.group_name = "tp";
  options.global_ranks = {4, 6, 9};
  options.timeout = std::chrono::milliseconds(1000);
  std::latch both_there(2);  // how long a thread takes to start is not to count
  std::latch gave_up(2);
  const auto outcomes = run_rank_threads(3, options, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      gave_up.wait();
      comm.barrier(call(1, OpKind::kBarrier, 0));
      return;
    }
    both_there.arrive_and_wait();
    try {
      comm.barrier(call(1, OpKind::kBarrier, 0));
    } catch (...) {
      gave_up.count_down();
      throw;
    }
    gave_up.count_down();
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, ErrorKind::kTimeout);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("group 'tp' call 1"), HasSubstr("still waiting for rank 6.")));
  }
}

TEST(WindowCommunicator, RankThatLeavesIsNamedByThoseWhoWait) {
  const PulseClock clock;
  std::array<PulseClock::Clock::time_point, 3> ended;  // of rank 1: when it leaves
  const auto outcomes = run_rank_threads(3, {}, [&](Communicator& comm) {
    auto& end = ended.at(static_cast<size_t>(comm.rank()));
    comm.barrier(call(1, OpKind::kBarrier, 0));
    end = PulseClock::Clock::now();
    if (comm.rank() == 1) return;
    try {
      comm.barrier(call(2, OpKind::kBarrier, 0));
    } catch (...) {
      end = PulseClock::Clock::now();
      throw;
    }
  });
  EXPECT_EQ(outcomes[1].error, "");
  for (const int r : {0, 2}) {
    EXPECT_LT(clock.seconds_between(ended[1], ended.at(static_cast<size_t>(r))), 1.0);
    EXPECT_EQ(outcomes[r].kind, ErrorKind::kPeerLost);
    EXPECT_THAT(outcomes[r].error, HasSubstr("rank 1 has left the group"));
  }
}

TEST(WindowCommunicator, AbortEndsOnesOwnPendingCallToo) {
  auto communicators = make_inproc_communicators(2, {});
  std::string error;
  std::thread waiter([&] {
    try {
      communicators[0]->barrier(call(1, OpKind::kBarrier, 0));
    } catch (const Error& e) {
      error = e.what();
    }
  });
  communicators[0]->abort("the test says so");
  waiter.join();
  EXPECT_THAT(error, HasSubstr("rank 0 gave up: the test says so"));
  EXPECT_THROW(communicators[1]->barrier(call(1, OpKind::kBarrier, 0)), Error);
}

TEST(WindowCommunicator, PeerOutsideTheGroupIsRefused) {
  auto communicators = make_inproc_communicators(2, {});
  float x = 0;
  for (const int peer : {-1, 0, 2}) {
    EXPECT_THROW(communicators[0]->send(call(1, OpKind::kSend, 1, peer), &x, 4), Error);
  }
}

/// Lets a peer act at the one moment that matters: while a rank that waits asks, for the nth time, whether it lives.
class ActingMemory final : public WindowMemory {
 public:
  ActingMemory(std::shared_ptr<WindowMemory> inner, int at_question, std::function<void()> act)
      : inner_(std::move(inner)), questions_left_(at_question), act_(std::move(act)) {}
  std::byte* data() override { return inner_->data(); }
  bool alive(int /*rank*/) override {
    if (--questions_left_ == 0) act_();
    return true;
  }

 private:
  std::shared_ptr<WindowMemory> inner_;
  int questions_left_;
  std::function<void()> act_;
};

// Two ranks on this thread; `act` is what rank 0 does at that moment of rank 1's waiting.
std::unique_ptr<Communicator> rank_one(int at_question, const std::function<void(Window&)>& act) {
  const WindowShape shape = {.num_ranks = 2, .slot_bytes = default_slot_bytes(2)};
  const auto memory = make_inproc_memory(shape);
  const auto zero = std::make_shared<Window>(memory, shape, 0, CommunicatorOptions{});
  const auto acting = std::make_shared<ActingMemory>(memory, at_question, [zero, act] { act(*zero); });
  return std::make_unique<WindowCommunicator>(std::make_unique<Window>(acting, shape, 1, CommunicatorOptions{}));
}

TEST(PeerThatLeaves, AfterItsSendIsNotMissedByTheReceiver) {
  const auto one = rank_one(1, [](Window& zero) {
    PeerLane& lane = zero.peer_lane(0, 1);
    lane.headers[1] = call(1, OpKind::kSend, 1, 1);
    *reinterpret_cast<float*>(zero.peer_slot(0, 1, 1)) = 7;
    lane.sent.publish(1);
    zero.leave();
  });
  float got = 0;
  one->recv(call(1, OpKind::kRecv, 1, 0), &got, sizeof(got));
  EXPECT_EQ(got, 7);
}

TEST(PeerThatLeaves, AfterItTookAPieceIsNotMissedByTheSenderOfTheNext) {
  // The first question is that of every send. Two pieces are in flight; the third waits until the first has been taken.
  const auto one = rank_one(2, [](Window& zero) {
    zero.peer_lane(1, 0).acknowledged.publish(1);
    zero.leave();
  });
  const std::vector<float> x(3 * kPeerSlotBytes / sizeof(float));
  one->send(call(1, OpKind::kSend, x.size(), 0), x.data(), 3 * kPeerSlotBytes);
}

TEST(PeerThatLeaves, WithoutSendingIsMissed) {
  const auto one = rank_one(1, [](Window& zero) { zero.leave(); });
  float got = 0;
  try {
    one->recv(call(1, OpKind::kRecv, 1, 0), &got, sizeof(got));
    ADD_FAILURE() << "threw nothing";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kPeerLost);
    EXPECT_THAT(error.what(), HasSubstr("rank 0 has left the group"));
  }
}

}  // namespace
}  // namespace trireme::comm
