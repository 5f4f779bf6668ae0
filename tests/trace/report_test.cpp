// Oracle: closed form. Ranks compute, wait for data, and meet in one all_reduce a step, for known times.
#include "trace/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/call_kinds.h"
#include "profile/collective_trace.h"
#include "trace/read_timeline.h"
#include "trireme/base/error.h"

namespace trireme::trace {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kUs = 1000;

struct Work {
  int64_t data_us = 0;
  int64_t compute_us = 100;
  int64_t idle_us = 0;  ///< before the collective
};

/// Steps of 1000 us: data, computation, idling, then an all_reduce that ends everywhere 50 us after the last rank came.
std::vector<Timeline> job(const std::vector<Work>& ranks, bool on_device, int steps = 10) {
  int64_t latest = 0;
  for (const Work& work : ranks) latest = std::max(latest, work.data_us + work.compute_us + work.idle_us);
  std::vector<Timeline> timelines;
  for (size_t r = 0; r < ranks.size(); ++r) {
    Timeline timeline;
    timeline.rank = static_cast<int>(r);
    timeline.source = "rank" + std::to_string(r);
    timeline.host = "one";
    timeline.on_device = on_device;
    timeline.names = {"n"};
    timeline.lanes.resize(2);
    timeline.groups = {{"dp|", "dp", {}, static_cast<int64_t>(ranks.size())}};
    for (int s = 0; s < steps; ++s) {
      const int64_t at = int64_t{1000} * s;
      const auto add = [&](int64_t from, int64_t to, Activity activity, uint16_t lane) {
        if (to > from) timeline.spans.push_back({(at + from) * kUs, (at + to) * kUs, 0, lane, activity});
      };
      const Work& work = ranks[r];
      const int64_t came = work.data_us + work.compute_us + work.idle_us;
      add(0, work.data_us, Activity::kDataWait, 0);
      add(work.data_us, work.data_us + work.compute_us, Activity::kCompute, 0);
      add(came, latest + 50, Activity::kCommunication, 1);
      Call call;
      call.start_ns = (at + came) * kUs;
      call.end_ns = (at + latest + 50) * kUs;
      call.op = CollectiveOp::kAllReduce;
      call.sequence = s;
      call.bytes_in = 1'000'000;
      timeline.calls.push_back(call);
      timeline.steps.push_back({s, at * kUs, (at + 1000) * kUs});
    }
    timeline.last_ns = 1000 * kUs * steps;
    timelines.push_back(timeline);
  }
  return timelines;
}

std::string words(const TraceReport& report) {
  std::string text;
  for (const Verdict& verdict : report.verdicts) text += verdict.text + "\n";
  return text;
}

TEST(Report, NamesTheLateRankAndItsCause) {
  const TraceReport compute = make_report(job({{}, {.compute_us = 500}, {}}, true), {});
  EXPECT_THAT(words(compute), HasSubstr("40 % of the step waits for rank 1's computation"));
  EXPECT_DOUBLE_EQ(compute.ranks[1].late_ms, 0.4);
  EXPECT_EQ(compute.ranks[1].num_last, 10);
  EXPECT_DOUBLE_EQ(compute.ranks[0].share[static_cast<size_t>(Share::kImbalance)], 0.4);
  EXPECT_DOUBLE_EQ(compute.ranks[1].share[static_cast<size_t>(Share::kImbalance)], 0);

  EXPECT_THAT(words(make_report(job({{.data_us = 300}, {}, {}}, true), {})),
              HasSubstr("30 % of the step waits for rank 0's data loader"));
  EXPECT_THAT(words(make_report(job({{}, {}, {.idle_us = 200}}, true), {})),
              HasSubstr("20 % of the step waits for rank 2's launch gaps"));
  EXPECT_THAT(words(make_report(job({{}, {}, {.idle_us = 200}}, false), {})),
              HasSubstr("20 % of the step waits for rank 2: code that is not traced"));
}

TEST(Report, NobodyIsNamedWhenAllAreAlike) {
  const TraceReport even = make_report(job({{.compute_us = 900}, {.compute_us = 900}}, true), {});
  EXPECT_THAT(words(even), Not(HasSubstr("rank")));
  for (const RankReport& rank : even.ranks) EXPECT_TRUE(rank.late_cause.empty());
  // All wait for data: a matter of all ranks, and of none.
  EXPECT_THAT(words(make_report(job({{.data_us = 400}, {.data_us = 400}}, true), {})),
              HasSubstr("40 % of the step waits for the data loader (mean of the ranks)"));
}

// What each rank sends to each other one: an all_reduce of S bytes over 4 ranks is S/2 to each.
TEST(Report, MatrixAndBandwidth) {
  const TraceReport report = make_report(job({{}, {}, {}, {}}, true), {});
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) EXPECT_DOUBLE_EQ(report.matrix_bytes[i][j], i == j ? 0 : 10 * 1e6 / 2);
  }
  ASSERT_EQ(report.collectives.size(), 1U);
  EXPECT_EQ(report.collectives[0].num_calls, 40);
  EXPECT_DOUBLE_EQ(report.collectives[0].busbw_gb_s, 1e6 * 1.5 / 50'000);
  EXPECT_DOUBLE_EQ(report.unplaced_bytes, 0);
}

// A group of a million ranks of which one has a trace, and many calls in it: what no trace tells the place of is summed at once.
TEST(Report, AGroupOfAMillionRanksCostsItsCallsNothing) {
  std::vector<Timeline> timelines = job({{}, {}}, false, 1);
  for (Timeline& timeline : timelines) {
    Group& group = timeline.groups[0];
    for (int rank = 0; rank < 1'000'000; ++rank) group.ranks.push_back(rank);
    group.size = 1'000'000;
    const Call call = timeline.calls[0];
    for (int i = 1; i < 20'000; ++i) {
      timeline.calls.push_back(call);
      timeline.calls.back().sequence = i;
    }
  }
  const TraceReport report = make_report(std::move(timelines), {});
  EXPECT_NEAR(report.matrix_bytes[0][1], 20'000 * 2e6 / 1e6, 1e-3);
  EXPECT_NEAR(report.unplaced_bytes, 2 * 20'000 * 2e6 * (999'998.0 / 1e6), 1e3);
}

// A page of 200,000 steps was 50 MB; browsers take some.
TEST(Report, APageOfManySteps) {
  ReportDetails details;
  const TraceReport report = make_report(job({{}, {}}, false, 20'000), {}, &details);
  EXPECT_EQ(report.steps.size(), 20'000U);
  const std::string page = report_html(report, details);
  EXPECT_LT(page.size(), size_t{3} << 20);
  EXPECT_THAT(page, HasSubstr("\"num_steps\":20000"));
  EXPECT_THAT(page, HasSubstr("the time line has the first 5000 of 20000 steps"));
}

TEST(Report, NoTraceIsRefused) { EXPECT_THROW((void)make_report({}, {}), Error); }

// The trace of a run folder: rank 1 comes 30 ms later to each call, 25 of them in its loader.
TEST(Report, OurOwnTraceTellsOfDataWait) {
  constexpr uint64_t kMs = 1'000'000;
  std::vector<Timeline> timelines;
  for (int rank = 0; rank < 2; ++rank) {
    profile::TraceSnapshot trace;
    trace.rank = rank;
    trace.host = "n1";
    trace.groups = {"world"};
    trace.group_ranks = {{0, 1}};
    for (uint64_t call = 1; call <= 10; ++call) {
      profile::TraceRecord record;
      record.serial = record.call = call;
      record.step = static_cast<uint32_t>(call);
      record.op = static_cast<uint8_t>(profile::OpKind::kAllReduce);
      record.state = static_cast<uint32_t>(profile::CallState::kFinished);
      record.queued_ns = record.started_ns = call * 100 * kMs + (rank == 1 ? 40 : 10) * kMs;
      record.finished_ns = call * 100 * kMs + 50 * kMs;
      if (rank == 1) trace.data_waits.push_back({call * 100 * kMs, call * 100 * kMs + 25 * kMs});
      trace.records.push_back(record);
    }
    timelines.push_back(timeline_of(trace, "rank" + std::to_string(rank)));
  }
  const TraceReport report = make_report(std::move(timelines), {});
  EXPECT_NEAR(report.ranks[1].late_ms, 30, 1e-9);
  EXPECT_EQ(report.ranks[1].late_cause, "its data loader");
  EXPECT_NEAR(report.ranks[1].share[static_cast<size_t>(Share::kDataWait)], 0.25, 1e-9);
  EXPECT_THAT(report_text(report, false), HasSubstr("waits for rank 1's data loader"));
}

}  // namespace
}  // namespace trireme::trace
