// Oracle: closed form. Traces are written down by hand, so who waits for whom is known.
#include "profile/hang_analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "profile/call_kinds.h"
#include "profile/divergence.h"
#include "profile/group_meeting.h"

namespace trireme::profile {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kSecond = 1'000'000'000;

/// A trace in the making; time goes on by a millisecond with each record.
class Writer {
 public:
  explicit Writer(int rank, int num_ranks = 3) {
    trace_.rank = rank;
    trace_.groups = {"world"};
    trace_.group_ranks.emplace_back();
    for (int r = 0; r < num_ranks; ++r) trace_.group_ranks[0].push_back(r);
  }
  Writer& step(uint32_t step) {
    step_ = step;
    return *this;
  }
  Writer& all_reduce(int64_t count, CallState state = CallState::kFinished, DType dtype = DType::kF32) {
    return add(OpKind::kAllReduce, -1, ++calls_, count, state, dtype);
  }
  Writer& all_to_all(int64_t count, CallState state) {
    add(OpKind::kAllToAll, -1, ++calls_, count, state, DType::kF32);
    trace_.records.back().num_dims = 0;
    trace_.records.back().dims[0] = 0;
    return *this;
  }
  Writer& meeting(CallState state) {
    add(OpKind::kBarrier, -1, kMeetingCall, 0, state, DType::kU8);
    std::snprintf(trace_.records.back().label, sizeof(TraceRecord::label), "making the group");
    return *this;
  }
  Writer& send(int to, uint64_t call, CallState state = CallState::kFinished, int64_t count = 10) {
    return add(OpKind::kSend, to, call, count, state, DType::kF32);
  }
  Writer& recv(int from, uint64_t call, CallState state = CallState::kFinished, int64_t count = 10) {
    return add(OpKind::kRecv, from, call, count, state, DType::kF32);
  }
  operator TraceSnapshot() const { return trace_; }  // NOLINT(google-explicit-constructor)

 private:
  Writer& add(OpKind op, int root, uint64_t call, int64_t count, CallState state, DType dtype) {
    TraceRecord record;
    record.serial = trace_.records.size() + 1;
    record.call = call;
    record.queued_ns = record.serial * 1'000'000;
    record.started_ns = record.queued_ns;
    record.finished_ns = record.queued_ns;
    record.bytes = static_cast<uint64_t>(count) * 4;
    record.dims[0] = count;
    record.num_dims = 1;
    record.state = static_cast<uint32_t>(state);
    record.step = step_;
    record.root = root;
    record.op = static_cast<uint8_t>(op);
    record.dtype = static_cast<uint8_t>(dtype);
    trace_.records.push_back(record);
    return *this;
  }
  TraceSnapshot trace_;
  uint64_t calls_ = 0;
  uint32_t step_ = 0;
};

HangInputs inputs(std::vector<TraceSnapshot> traces, std::set<int> cannot_go = {}) {
  return {
      .traces = std::move(traces), .now_ns = 10 * kSecond, .limit_ns = 3 * kSecond, .cannot_go = std::move(cannot_go)};
}

std::vector<int> ranks_of(const std::vector<Culprit>& culprits) {
  std::vector<int> ranks;
  for (const Culprit& culprit : culprits) ranks.push_back(culprit.rank);
  return ranks;
}

TEST(HangAnalysis, OneThatHasNotComeIsLateAndTheCulprit) {
  const HangFinding found =
      find_hang(inputs({Writer(0).all_reduce(5).step(2).all_reduce(7, CallState::kStarted),
                        Writer(1).all_reduce(5).step(2).all_reduce(7, CallState::kStarted), Writer(2).all_reduce(5)}));
  ASSERT_EQ(found.calls.size(), 1U);
  EXPECT_EQ(found.calls[0].what, "all_reduce sum f32[7]");
  EXPECT_EQ(found.calls[0].call, 2U);
  EXPECT_EQ(found.calls[0].step, 2U);
  EXPECT_THAT(found.calls[0].waiting, ElementsAre(0, 1));
  EXPECT_THAT(found.calls[0].late, ElementsAre(2));
  EXPECT_EQ(found.calls[0].last_common, 1U);
  EXPECT_EQ(found.calls[0].last_common_what, "all_reduce sum f32[5]");
  EXPECT_THAT(ranks_of(found.culprits), ElementsAre(2));
  EXPECT_FALSE(found.culprits[0].in_a_call);
}

TEST(HangAnalysis, NothingWhileNobodyWaitsForLongOrAllAreInTheCall) {
  HangInputs early = inputs({Writer(0).all_reduce(5, CallState::kStarted), Writer(1), Writer(2)});
  early.now_ns = 2 * kSecond;
  EXPECT_TRUE(find_hang(early).empty());
  EXPECT_TRUE(
      find_hang(inputs({Writer(0).all_reduce(5, CallState::kStarted), Writer(1).all_reduce(5, CallState::kStarted),
                        Writer(2).all_reduce(5, CallState::kStarted)}))
          .empty());
  EXPECT_TRUE(find_hang(inputs({})).empty());
}

TEST(HangAnalysis, OneThatIsStoppedInsideTheCallIsTheCulprit) {
  const auto in_call = [](int rank) { return Writer(rank).all_reduce(5, CallState::kStarted); };
  const HangFinding found = find_hang(inputs({in_call(0), in_call(1), in_call(2)}, {1}));
  ASSERT_EQ(found.calls.size(), 1U);
  EXPECT_THAT(found.calls[0].late, ElementsAre(1));
  EXPECT_THAT(ranks_of(found.culprits), ElementsAre(1));
}

TEST(HangAnalysis, ARankWithoutATraceIsLate) {
  const HangFinding found = find_hang(inputs({Writer(0).all_reduce(5, CallState::kStarted)}));
  EXPECT_THAT(ranks_of(found.culprits), ElementsAre(1, 2));
}

TEST(HangAnalysis, TheEndOfAChainIsTheCulprit) {
  // 0 waits for 1 in an all_reduce, 1 for 2 in a message, and 2 does something else.
  const HangFinding found =
      find_hang(inputs({Writer(0).all_reduce(5, CallState::kStarted), Writer(1).recv(2, 1, CallState::kStarted),
                        Writer(2).all_reduce(5, CallState::kFinished)}));
  EXPECT_THAT(ranks_of(found.culprits), ElementsAre(2));
  EXPECT_THAT(found.links, ElementsAre("rank 1 waits for rank 2 in call 1 of group 'world', recv f32[10] from 2"));
}

TEST(HangAnalysis, ACircleIsNamedAsOne) {
  const HangFinding found = find_hang(
      inputs({Writer(0).recv(1, 1, CallState::kStarted), Writer(1).recv(0, 1, CallState::kStarted), Writer(2)}));
  EXPECT_THAT(found.culprits, IsEmpty());
  EXPECT_THAT(found.circle, ElementsAre(0, 1));
}

TEST(HangAnalysis, OneThatIsKnownNotToWaitIsTheCulpritWhateverItHasUnderWay) {
  // Rank 1 has posted a receive from 0 and sleeps; 0 waits for it in an all_reduce.
  const std::vector<TraceSnapshot> traces = {Writer(0, 2).all_reduce(5, CallState::kStarted),
                                             Writer(1, 2).recv(0, 1, CallState::kStarted)};
  EXPECT_THAT(find_hang(inputs(traces)).circle, ElementsAre(0, 1));
  EXPECT_THAT(ranks_of(find_hang(inputs(traces, {1})).culprits), ElementsAre(1));
}

TEST(HangAnalysis, ASendWaitsForTheReceiver) {
  const HangFinding found = find_hang(
      inputs({Writer(0).send(1, 1).send(1, 2, CallState::kStarted), Writer(1).recv(0, 1).all_reduce(5), Writer(2)}));
  ASSERT_EQ(found.calls.size(), 1U);
  EXPECT_EQ(found.calls[0].what, "send f32[10] to 1");
  EXPECT_THAT(found.calls[0].late, ElementsAre(1));
  EXPECT_EQ(found.calls[0].last_common, 1U);
}

TEST(Divergence, TheMinorityIsOutOfStep) {
  const auto found = find_divergence({Writer(0).all_reduce(5).all_reduce(7), Writer(1).all_reduce(5).all_reduce(8),
                                      Writer(2).all_reduce(5).all_reduce(7)});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->told_by, Divergence::ToldBy::kMajority);
  EXPECT_THAT(found->odd, ElementsAre(1));
  EXPECT_EQ(found->words(),
            "rank 1 is out of step in call 2 of group 'world': ranks 0, 2 called all_reduce sum f32[7]; rank 1 "
            "called all_reduce sum f32[8]; the shapes differ.");
}

TEST(Divergence, OfTwoTheOneThatLeftItsOwnHabitIsOutOfStep) {
  const auto steps = [](int rank, int64_t third) {
    Writer writer(rank, 2);
    for (uint32_t step = 1; step <= 2; ++step) writer.step(step).all_reduce(5).all_reduce(7);
    return TraceSnapshot(writer.step(3).all_reduce(third));
  };
  for (const int odd : {0, 1}) {
    const auto found = find_divergence({steps(0, odd == 0 ? 7 : 5), steps(1, odd == 1 ? 7 : 5)});
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->told_by, Divergence::ToldBy::kOwnPast);
    EXPECT_THAT(found->odd, ElementsAre(odd));
    EXPECT_THAT(found->words(), HasSubstr("in step 2 it called all_reduce sum f32[5] there"));
  }
}

TEST(Divergence, OfTwoWithoutAPastNothingTells) {
  const auto found =
      find_divergence({Writer(0, 2).all_reduce(5), Writer(1, 2).all_reduce(5, CallState::kFinished, DType::kF64)});
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->odd, IsEmpty());
  EXPECT_THAT(found->words(), AllOf(HasSubstr("the dtypes differ"), HasSubstr("Nothing tells which of them is right")));
}

// One call fewer of the same shape shows only in the steps.
TEST(Divergence, ACallThatIsMissingShowsInTheSteps) {
  Writer whole(0, 2);
  Writer lacks(1, 2);
  for (uint32_t step = 1; step <= 4; ++step) {
    for (Writer* writer : {&whole, &lacks}) {
      writer->step(step).all_reduce(5);
      if (step != 3 || writer == &whole) writer->all_reduce(5);
    }
  }
  const auto found = find_divergence({whole, lacks});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->call, 6U);
  EXPECT_THAT(found->odd, ElementsAre(1));
  EXPECT_THAT(found->words(), HasSubstr("it made 1 calls in step 3 and 2 in the one before"));
}

// One pair disagrees about its part; the sender's other parts fit, so it has finished the call.
TEST(Divergence, OfAFailedAllToAllTheOneThatSentOtherwiseThanBeforeIsOutOfStep) {
  const auto steps = [](int rank, int64_t last, CallState state) {
    Writer writer(rank, 2);
    for (uint32_t step = 1; step <= 2; ++step) writer.step(step).all_to_all(8, CallState::kFinished);
    return TraceSnapshot(writer.step(3).all_to_all(last, state));
  };
  const auto found = find_divergence({steps(0, 8, CallState::kFailed), steps(1, 11, CallState::kFinished)});
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->odd, ElementsAre(1));
  EXPECT_THAT(found->words(), HasSubstr("what each sends is not what the other expects"));
}

TEST(Divergence, StepsThatNeverAgreedAndUnevenPartsAreNone) {
  EXPECT_FALSE(find_divergence(
                   {Writer(0, 2).step(1).all_reduce(5).step(2).all_reduce(5), Writer(1, 2).all_reduce(5).all_reduce(5)})
                   .has_value());
  EXPECT_FALSE(find_divergence(
                   {Writer(0, 2).all_to_all(5, CallState::kFinished), Writer(1, 2).all_to_all(6, CallState::kFinished)})
                   .has_value());
}

// Call 0 is the meeting of a group's members: who has no part in it yet is late.
TEST(HangAnalysis, ARankThatHasNotComeToAGroupsMeetingIsLate) {
  const HangFinding found = find_hang(inputs({Writer(0).meeting(CallState::kStarted), Writer(2)}));
  ASSERT_EQ(found.calls.size(), 1U);
  EXPECT_EQ(found.calls[0].call, kMeetingCall);
  EXPECT_EQ(found.calls[0].what, "barrier (making the group)");
  EXPECT_THAT(found.calls[0].waiting, ElementsAre(0));
  EXPECT_THAT(found.calls[0].late, ElementsAre(1, 2));
  EXPECT_THAT(ranks_of(found.culprits), ElementsAre(1, 2));
  EXPECT_TRUE(find_hang(inputs({Writer(0).meeting(CallState::kStarted), Writer(1).meeting(CallState::kStarted),
                                Writer(2).meeting(CallState::kStarted)}))
                  .empty());
  const HangFinding stopped =
      find_hang(inputs({Writer(0).meeting(CallState::kStarted), Writer(1).meeting(CallState::kStarted),
                        Writer(2).meeting(CallState::kStarted)},
                       {1}));
  EXPECT_THAT(ranks_of(stopped.culprits), ElementsAre(1));
}

// Each of them misses all but itself, so the last one looked at misses only the other.
TEST(HangAnalysis, SeveralThatCannotGoOnAreAllLate) {
  const auto started = [](int rank) { return Writer(rank, 4).all_reduce(5).all_reduce(7, CallState::kStarted); };
  const HangFinding found = find_hang(inputs({started(0), Writer(1, 4).all_reduce(5), started(2), started(3)}, {1, 3}));
  ASSERT_EQ(found.calls.size(), 1U);
  EXPECT_THAT(found.calls[0].waiting, ElementsAre(0, 2));
  EXPECT_THAT(found.calls[0].late, ElementsAre(1, 3));
  EXPECT_THAT(ranks_of(found.culprits), ElementsAre(1, 3));
}

// A damaged table may list a hundred thousand ranks: those that the job does not have are nobody's concern, and cost little. (A million took minutes.)
TEST(HangAnalysis, RanksBeyondTheJobAreNotWaitedFor) {
  std::vector<TraceSnapshot> traces;
  for (int rank = 0; rank < 2; ++rank) {
    Writer writer(rank, 100'000);
    for (int call = 0; call < 20; ++call) writer.all_reduce(5, CallState::kStarted);
    traces.push_back(writer);
  }
  HangInputs given = inputs(std::move(traces));
  given.num_ranks = 3;
  const HangFinding found = find_hang(given);
  ASSERT_EQ(found.calls.size(), 20U);
  EXPECT_THAT(found.calls[0].late, ElementsAre(2));
  EXPECT_THAT(ranks_of(found.culprits), ElementsAre(2));
}

TEST(GroupMeeting, IsACallUnderWayWhileItLives) {
  const auto trace = open_collective_trace({.rank = 1, .capacity = 8});
  const uint16_t group = trace->register_group("dp", {1, 3});
  {
    GroupMeeting meeting(trace.get(), group);
    const TraceSnapshot during = trace->snapshot();
    ASSERT_EQ(during.records.size(), 1U);
    EXPECT_EQ(during.records[0].call, kMeetingCall);
    EXPECT_EQ(during.records[0].state, static_cast<uint32_t>(CallState::kStarted));
    meeting.done();
  }
  {
    const GroupMeeting given_up(trace.get(), group);
  }
  const TraceSnapshot after = trace->snapshot();
  ASSERT_EQ(after.records.size(), 2U);
  EXPECT_EQ(after.records[0].state, static_cast<uint32_t>(CallState::kFinished));
  EXPECT_EQ(after.records[1].state, static_cast<uint32_t>(CallState::kFailed));
  {
    const GroupMeeting nowhere(nullptr, 0);
  }
}

// Numbers of a damaged file: whoever counts from one to the other counts for years.
TEST(Divergence, NumbersThatAreFarApartAreNotCountedThrough) {
  TraceSnapshot first = Writer(0, 2).all_reduce(5).all_reduce(7);
  TraceSnapshot second = Writer(1, 2).all_reduce(5).all_reduce(8);
  first.records[1].call = second.records[1].call = UINT64_MAX - 1;
  const auto found = find_divergence({first, second});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->call, UINT64_MAX - 1);
  EXPECT_EQ(found->difference, "the shapes differ");
}

}  // namespace
}  // namespace trireme::profile
