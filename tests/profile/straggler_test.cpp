// Oracle: closed form. Traces are made from a plan of how long each rank computes, waits for data and communicates in each step, by the rule that
// no rank leaves a collective before the last one has come; so every lateness, and its parts, are known.
#include "profile/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "profile/call_kinds.h"
#include "trireme/base/error.h"

namespace trireme::profile {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMs = 1'000'000;

/// What a rank does before a call.
struct Work {
  int64_t compute_ns = 10 * kMs;
  int64_t data_ns = 0;
  int64_t leaves_late_ns = 0;  ///< how much later than the others it gets out of the call
};

/// Writes the traces of a job in which each step has some all_reduces, and before each of them everybody works.
class Job {
 public:
  explicit Job(int num_ranks, size_t capacity = 4096) : capacity_(capacity) {
    std::vector<int> all;
    for (int r = 0; r < num_ranks; ++r) all.push_back(r);
    for (int r = 0; r < num_ranks; ++r) {
      TraceSnapshot trace;
      trace.rank = r;
      trace.host = "n1";
      trace.groups = {"world"};
      trace.group_ranks = {all};
      traces.push_back(trace);
      now_.push_back(1000 * kMs);
    }
    call(0, std::vector<Work>(static_cast<size_t>(num_ranks), Work{}));  // what starts a job
  }

  /// One call of every rank, each after its work; takes 1 ms after the last has come.
  void call(uint32_t step, const std::vector<Work>& work, OpKind op = OpKind::kAllReduce) {
    ++calls_;
    int64_t latest = 0;
    for (size_t r = 0; r < work.size(); ++r) {
      if (work[r].data_ns > 0) {
        traces[r].data_waits.push_back(
            {static_cast<uint64_t>(now_[r]), static_cast<uint64_t>(now_[r] + work[r].data_ns)});
      }
      now_[r] += work[r].data_ns + work[r].compute_ns;
      latest = std::max(latest, now_[r] + clock(r));
    }
    for (size_t r = 0; r < work.size(); ++r) {
      TraceRecord record;
      record.serial = calls_;
      record.call = calls_;
      record.step = step;
      record.op = static_cast<uint8_t>(op);
      record.state = static_cast<uint32_t>(CallState::kFinished);
      record.queued_ns = static_cast<uint64_t>(now_[r]);
      record.started_ns = record.queued_ns;
      now_[r] = latest - clock(r) + kMs + work[r].leaves_late_ns;
      record.finished_ns = static_cast<uint64_t>(now_[r]);
      std::vector<TraceRecord>& records = traces[r].records;
      records.push_back(record);
      if (records.size() > capacity_) records.erase(records.begin());
      if (traces[r].data_waits.size() > 126) traces[r].data_waits.erase(traces[r].data_waits.begin());
    }
  }

  /// A step of one call.
  void step(const std::vector<Work>& work) { call(++steps_, work); }
  void step(const std::vector<Work>& first, const std::vector<Work>& second) {
    call(++steps_, first);
    call(steps_, second);
  }
  void steps(int count, const std::vector<Work>& work) {
    for (int i = 0; i < count; ++i) step(work);
  }
  /// This rank's clock is behind by so much, and it is on another host.
  void move_to_other_host(size_t rank, int64_t behind_ns) {
    traces[rank].host = "n2";
    behind_.resize(traces.size());
    behind_[rank] = behind_ns;
  }

  std::vector<TraceSnapshot> traces;

 private:
  [[nodiscard]] int64_t clock(size_t rank) const { return rank < behind_.size() ? behind_[rank] : 0; }
  size_t capacity_;
  uint64_t calls_ = 0;
  uint32_t steps_ = 0;
  std::vector<int64_t> now_;
  std::vector<int64_t> behind_;
};

std::vector<Work> equal(int num_ranks) { return std::vector<Work>(static_cast<size_t>(num_ranks)); }
std::vector<Work> one_slow(int num_ranks, size_t rank, Work work) {
  std::vector<Work> all = equal(num_ranks);
  all[rank] = work;
  return all;
}

std::vector<bool> kinds(const std::vector<StragglerNews>& news) {
  std::vector<bool> out;
  for (const StragglerNews& one : news) out.push_back(one.slow);
  return out;
}

TEST(Lateness, IsSplitIntoDataComputationAndCommunication) {
  Job job(3);
  job.steps(3, equal(3));
  job.step(one_slow(3, 2, {.compute_ns = 13 * kMs, .data_ns = 35 * kMs}));       // 4: 38 late, 35 of it data
  job.step(one_slow(3, 1, {.leaves_late_ns = 6 * kMs}));                         // 5: on time, but out of the call late
  job.step(equal(3));                                                            // 6: hence 6 late
  job.step({{.data_ns = 5 * kMs}, {.data_ns = 5 * kMs}, {.data_ns = 8 * kMs}});  // 7: all load, one for 3 more
  job.steps(2, equal(3));
  const std::vector<StepLateness> steps = lateness_of_steps(job.traces);
  ASSERT_EQ(steps.size(), 8U);  // the ninth has no call after it
  EXPECT_EQ(steps[0].step, 1U);
  EXPECT_EQ(steps[2].ranks[0].late_ns, 0);
  EXPECT_EQ(steps[2].duration_ns, 11 * kMs);  // 10 of work, 1 of the call
  EXPECT_EQ(steps[3].ranks[2].late_ns, 38 * kMs);
  EXPECT_EQ(steps[3].ranks[2].data_ns, 35 * kMs);
  EXPECT_EQ(steps[3].ranks[2].compute_ns, 3 * kMs);
  EXPECT_EQ(steps[3].ranks[2].communication_ns, 0);
  EXPECT_EQ(steps[3].ranks[0].late_ns, 0);
  EXPECT_EQ(steps[3].duration_ns, 49 * kMs);
  EXPECT_EQ(steps[5].ranks[1].late_ns, 6 * kMs);
  EXPECT_EQ(steps[5].ranks[1].communication_ns, 6 * kMs);
  EXPECT_EQ(steps[5].ranks[1].compute_ns, 0);
  EXPECT_EQ(steps[6].ranks[2].late_ns, 3 * kMs);
  EXPECT_EQ(steps[6].ranks[2].data_ns, 3 * kMs);
}

TEST(Lateness, TheCallsOfAStepAddUpAndRootedOnesDoNotCount) {
  Job job(2);
  job.step(equal(2));
  // In its first call rank 0 is 4 ms late, in its second one 2, in the broadcast, for which nobody waits, 9.
  job.call(2, one_slow(2, 0, {.compute_ns = 14 * kMs}));
  job.call(2, one_slow(2, 0, {.compute_ns = 12 * kMs}));
  job.call(2, one_slow(2, 0, {.compute_ns = 19 * kMs}), OpKind::kBroadcast);
  job.call(3, equal(2));
  const std::vector<StepLateness> steps = lateness_of_steps(job.traces);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].ranks[0].late_ns, 6 * kMs);
  EXPECT_EQ(steps[1].ranks[1].late_ns, 0);
}

TEST(Lateness, ClocksOfOtherHostsAreAligned) {
  Job job(2);
  job.move_to_other_host(1, 7'000 * kMs);
  for (int i = 0; i < 9; ++i) job.step(one_slow(2, i == 4 ? 1 : 0, {.compute_ns = (i == 4 ? 25 : 10) * kMs}));
  const std::vector<StepLateness> steps = lateness_of_steps(job.traces);
  ASSERT_EQ(steps.size(), 8U);
  EXPECT_EQ(steps[4].ranks[1].late_ns, 15 * kMs);
  EXPECT_EQ(steps[3].ranks[1].late_ns, 0);
}

// 4,000 steps of a second on two hosts whose clocks part by a tenth of a millisecond a second: with one offset for all, the second host's rank would seem
// to come 0.2 s late to the last steps, a fifth of each.
TEST(Straggler, ClocksThatDriftApartNameNobody) {
  for (const int64_t late_ns : {int64_t{0}, 300 * kMs}) {
    Job job(2);
    job.move_to_other_host(1, 7'000 * kMs);
    job.steps(4000, {{.compute_ns = 1000 * kMs + late_ns}, {.compute_ns = 1000 * kMs}});
    const auto drifted = [](uint64_t time) { return time + time / 10'000; };
    for (TraceRecord& record : job.traces[1].records) {
      for (uint64_t* time : {&record.queued_ns, &record.started_ns, &record.finished_ns}) *time = drifted(*time);
    }
    const std::vector<StragglerNews> news = StragglerWatch({}).look(job.traces);
    ASSERT_EQ(news.size(), late_ns == 0 ? 0U : 1U);
    if (late_ns == 0) continue;
    EXPECT_EQ(news[0].rank, 0);
    EXPECT_NEAR(static_cast<double>(news[0].mean.late_ns), static_cast<double>(late_ns), 10.0 * kMs);
  }
}

TEST(Straggler, IsNamedOnceWithByHowMuchAndWhy) {
  Job job(3);
  StragglerWatch watch({});
  job.steps(30, equal(3));
  EXPECT_THAT(watch.look(job.traces), IsEmpty());
  // 19 of the slow steps are whole: the last one has none after it yet.
  job.steps(20, one_slow(3, 2, {.compute_ns = 13 * kMs, .data_ns = 35 * kMs}));
  EXPECT_THAT(watch.look(job.traces), IsEmpty());
  job.step(one_slow(3, 2, {.compute_ns = 13 * kMs, .data_ns = 35 * kMs}));
  const std::vector<StragglerNews> news = watch.look(job.traces);
  ASSERT_EQ(news.size(), 1U);
  EXPECT_EQ(news[0].rank, 2);
  EXPECT_EQ(news[0].first_step, 31U);
  EXPECT_EQ(news[0].last_step, 50U);
  EXPECT_EQ(news[0].mean.late_ns, 38 * kMs);
  EXPECT_EQ(news[0].step_ns, 49 * kMs);
  // 38 of 49 ms are 78 %.
  EXPECT_EQ(
      news[0].words(),
      "rank 2 (n1) is slow: it came 38 ms later than the others in each of the last 20 steps (78 % of a step; steps "
      "31 to 50), 35 ms of it in data loading");
  job.steps(500, one_slow(3, 2, {.compute_ns = 13 * kMs, .data_ns = 35 * kMs}));
  EXPECT_THAT(watch.look(job.traces), IsEmpty());
  job.steps(21, equal(3));
  const std::vector<StragglerNews> over = watch.look(job.traces);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_FALSE(over[0].slow);
  EXPECT_THAT(over[0].words(), HasSubstr("rank 2 (n1) is no longer slow"));
  job.steps(500, equal(3));
  EXPECT_THAT(watch.look(job.traces), IsEmpty());
}

TEST(Straggler, TheCauseIsTheLargestPart) {
  const std::pair<Work, const char*> cases[] = {
      {{.compute_ns = 18 * kMs, .data_ns = 2 * kMs}, "10 ms later than the others in each of the last 20 steps"},
      {{.compute_ns = 18 * kMs}, "8.0 ms of it in computation or other code of its own"},
      {{.leaves_late_ns = 9 * kMs}, "9.0 ms of it in communication"},
      {{.data_ns = 9 * kMs}, "9.0 ms of it in data loading"}};
  for (const auto& [work, words] : cases) {
    Job job(2);
    job.steps(25, one_slow(2, 0, work));
    const std::vector<StragglerNews> news = StragglerWatch({}).look(job.traces);
    ASSERT_EQ(news.size(), 1U) << words;
    EXPECT_THAT(news[0].words(), AllOf(HasSubstr("rank 0"), HasSubstr(words)));
  }
}

TEST(Straggler, NobodyIsNamedInHealthyJobs) {
  struct Case {
    const char* name;
    std::vector<Work> (*work)(int step);
  };
  const Case cases[] = {
      {"all alike", [](int) { return equal(3); }},
      // 2 s of evaluation on rank 0 every 100 steps.
      {"evaluation", [](int step) { return one_slow(3, 0, {.compute_ns = (step % 100 == 0 ? 2'010 : 10) * kMs}); }},
      {"by turns", [](int step) { return one_slow(3, static_cast<size_t>(step) % 3, {.compute_ns = 50 * kMs}); }},
      // 19 steps in a row are one too few.
      {"for a while", [](int step) { return one_slow(3, 1, {.compute_ns = (step % 20 == 0 ? 10 : 50) * kMs}); }},
      // 9 of 110 ms are 8 %; and 1.9 ms are not 2.
      {"a little",
       [](int) {
         return std::vector<Work>{{.compute_ns = 100 * kMs}, {.compute_ns = 109 * kMs}, {.compute_ns = 100 * kMs}};
       }},
      {"short steps",
       [](int) { return std::vector<Work>{{.compute_ns = kMs}, {.compute_ns = 29 * kMs / 10}, {.compute_ns = kMs}}; }},
  };
  for (const Case& one : cases) {
    Job job(3);
    StragglerWatch watch({});
    for (int step = 1; step <= 1000; ++step) {
      job.step(one.work(step));
      if (step % 37 == 0) {
        for (const StragglerNews& news : watch.look(job.traces)) ADD_FAILURE() << one.name << ": " << news.words();
      }
    }
  }
}

// Within a step the two ranks wait for each other by turns, and as long: neither is slower.
TEST(Straggler, RanksThatAreLateByTurnsWithinAStepAreNone) {
  Job job(2);
  for (int i = 0; i < 100; ++i) {
    job.step(one_slow(2, 0, {.compute_ns = 20 * kMs}), one_slow(2, 1, {.compute_ns = 19 * kMs}));
  }
  EXPECT_THAT(StragglerWatch({}).look(job.traces), IsEmpty());
}

// More steps than the ring holds pass between two looks.
TEST(Straggler, WorksWithWhatTheRingStillHolds) {
  Job job(2, 40);
  StragglerWatch watch({});
  std::vector<bool> told;
  for (int look = 0; look < 10; ++look) {
    const bool slow = look >= 2 && look < 6;
    job.steps(100, one_slow(2, 1, {.compute_ns = (slow ? 30 : 10) * kMs}));
    for (const bool kind : kinds(watch.look(job.traces))) told.push_back(kind);
  }
  EXPECT_THAT(told, ElementsAre(true, false));
}

TEST(Straggler, CallsWithoutStepsAndMissingTracesTellNothing) {
  Job without(2);
  for (int i = 0; i < 100; ++i) without.call(0, one_slow(2, 1, {.compute_ns = 30 * kMs}));
  EXPECT_THAT(StragglerWatch({}).look(without.traces), IsEmpty());
  Job missing(3);
  missing.steps(100, one_slow(3, 1, {.compute_ns = 30 * kMs}));
  missing.traces.pop_back();
  EXPECT_THAT(StragglerWatch({}).look(missing.traces), IsEmpty());
  EXPECT_THAT(StragglerWatch({}).look({}), IsEmpty());
}

TEST(Straggler, OptionsComeFromTheEnvironment) {
  setenv("TRIREME_SLOW_AFTER_STEPS", "5", 1);
  setenv("TRIREME_SLOW_PERCENT", "25", 1);
  const StragglerOptions options = straggler_options_from_environment();
  EXPECT_EQ(options.num_steps, 5);
  EXPECT_DOUBLE_EQ(options.share, 0.25);
  // 10 of 31 ms are more than 25 %, 2 of 13 are not.
  for (const int64_t more : {20, 2}) {
    Job job(2);
    job.steps(7, one_slow(2, 1, {.compute_ns = (10 + more) * kMs}));
    EXPECT_EQ(StragglerWatch(options).look(job.traces).size(), more == 20 ? 1U : 0U);
  }
  setenv("TRIREME_SLOW_PERCENT", "much", 1);
  EXPECT_THROW((void)straggler_options_from_environment(), Error);
  unsetenv("TRIREME_SLOW_PERCENT");
  setenv("TRIREME_SLOW_AFTER_STEPS", "0", 1);
  Job job(2);
  job.steps(100, one_slow(2, 1, {.compute_ns = 30 * kMs}));
  EXPECT_THAT(StragglerWatch(straggler_options_from_environment()).look(job.traces), IsEmpty());
  unsetenv("TRIREME_SLOW_AFTER_STEPS");
}

// Times of a damaged file: sums of them must not overflow (UBSan looks), and say nothing wrong of a rank by that.
TEST(Lateness, TimesAtTheBorderAreSummedWithoutOverflow) {
  for (const uint64_t far : {uint64_t{1} << 57, (uint64_t{1} << 58) - 1, uint64_t{1} << 62, UINT64_MAX}) {
    Job job(5);
    for (uint32_t step = 1; step <= 30; ++step) job.call(step, std::vector<Work>(5));
    for (size_t r = 1; r < job.traces.size(); r += 2) {
      job.traces[r].host = "n2";
      for (size_t i = 0; i < job.traces[r].records.size(); ++i) {
        TraceRecord& record = job.traces[r].records[i];
        record.started_ns = i % 2 == 0 ? 1 : far - 1;
        record.finished_ns = far;
      }
      job.traces[r].data_waits = {{0, uint64_t{1} << 62}};
    }
    for (const StepLateness& step : lateness_of_steps(job.traces)) {
      for (const Lateness& rank : step.ranks) {
        EXPECT_EQ(rank.late_ns >= 0, true);
        EXPECT_LE(rank.late_ns, int64_t{1} << 60);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::profile
