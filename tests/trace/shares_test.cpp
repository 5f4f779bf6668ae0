// Oracle: a second implementation, which asks at every nanosecond which spans cover it, on random timelines; and closed forms.
#include "trace/shares.h"

#include <gtest/gtest.h>

#include <random>

#include "trace/report.h"

namespace trireme::trace {
namespace {

constexpr int64_t kLength = 300;

/// The share of one nanosecond, by the definition.
Segment at(const Timeline& timeline, const std::vector<Wait>& waits, int64_t ns) {
  bool computes = false;
  bool communicates = false;
  bool copies = false;
  bool waits_for_data = false;
  for (size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    bool open[kNumActivities] = {};
    for (const Span& span : timeline.spans) {
      if (span.lane == lane && span.start_ns <= ns && ns < span.end_ns) open[static_cast<size_t>(span.activity)] = true;
    }
    if (open[static_cast<size_t>(Activity::kCommunication)]) {
      communicates = true;
    } else if (open[static_cast<size_t>(Activity::kDataWait)]) {
      waits_for_data = true;
    } else if (open[static_cast<size_t>(Activity::kCompute)]) {
      computes = true;
    } else if (open[static_cast<size_t>(Activity::kCopy)]) {
      copies = true;
    }
  }
  Segment result{ns, ns + 1, Share::kGap, computes && communicates, -1};
  if (computes) {
    result.share = Share::kCompute;
  } else if (communicates) {
    result.share = Share::kExposed;
    for (const Wait& wait : waits) {
      if (wait.start_ns <= ns && ns < wait.end_ns) {
        result.share = Share::kImbalance;
        result.awaited = wait.awaited;
      }
    }
  } else if (copies) {
    result.share = Share::kCopy;
  } else if (waits_for_data) {
    result.share = Share::kDataWait;
  }
  return result;
}

TEST(Shares, EqualAskingEveryNanosecond) {
  std::mt19937 random(3);
  const auto pick = [&random](int64_t below) { return static_cast<int64_t>(random() % static_cast<uint32_t>(below)); };
  for (int trial = 0; trial < 400; ++trial) {
    Timeline timeline;
    timeline.lanes.resize(static_cast<size_t>(1 + pick(4)));
    for (int64_t i = pick(40); i > 0; --i) {
      const int64_t start = pick(kLength);
      timeline.spans.push_back({start, start + pick(60), 0,
                                static_cast<uint16_t>(pick(static_cast<int64_t>(timeline.lanes.size()))),
                                static_cast<Activity>(pick(kNumActivities))});
    }
    std::vector<Wait> waits;  // one after the other: two at once have no defined order
    for (int64_t start = pick(80); start < kLength; start += 1 + pick(90)) {
      const int64_t end = start + pick(50);
      waits.push_back({start, end, static_cast<int32_t>(pick(3))});
      start = end;
    }
    timeline.steps = {{0, 10, 90}, {1, 90, 230}, {2, 250, 250}, {3, 200, 400}};  // one empty, two overlap
    const std::vector<StepShares> got = shares_of(timeline, segments_of(timeline, waits), 3);
    ASSERT_EQ(got.size(), timeline.steps.size());
    for (size_t s = 0; s < timeline.steps.size(); ++s) {
      StepShares want;
      want.waits_ns.assign(3, 0);
      for (int64_t ns = timeline.steps[s].start_ns; ns < timeline.steps[s].end_ns; ++ns) {
        const Segment one = at(timeline, waits, ns);
        ++want.share_ns[static_cast<size_t>(one.share)];
        if (one.overlapped) ++want.overlapped_ns;
        if (one.awaited >= 0) ++want.waits_ns[static_cast<size_t>(one.awaited)];
      }
      int64_t sum = 0;
      for (int share = 0; share < kNumShares; ++share) {
        EXPECT_EQ(got[s].share_ns[share], want.share_ns[share])
            << "trial " << trial << " step " << s << " share " << share;
        sum += got[s].share_ns[share];
      }
      EXPECT_EQ(sum, got[s].total_ns);
      EXPECT_EQ(got[s].overlapped_ns, want.overlapped_ns) << trial;
      EXPECT_EQ(got[s].waits_ns, want.waits_ns) << trial;
    }
  }
}

// ---- clocks

struct Job {
  std::vector<Timeline> timelines;
};

/// Ranks that meet in an all_reduce every 10 ms; rank r's clock shows t + offset + drift * t. Ends differ by up to `noise_ns`, and of every ten
/// collectives `odd` have an end that is far off.
Job job(int ranks, int calls, const std::vector<double>& offset_ns, const std::vector<double>& drift, int64_t noise_ns,
        int odd, bool numbered) {
  std::mt19937_64 random(17);
  Job result;
  constexpr int64_t kStart = 1'790'000'000'000'000'000;
  for (int r = 0; r < ranks; ++r) {
    Timeline timeline;
    timeline.rank = r;
    timeline.groups = {{"world", "world", {}, ranks}};
    timeline.lanes.resize(1);
    timeline.first_ns = kStart;
    result.timelines.push_back(timeline);
  }
  for (int c = 0; c < calls; ++c) {
    const int64_t end = int64_t{10'000'000} * c + 5'000'000;
    for (int r = 0; r < ranks; ++r) {
      Call call;
      int64_t left = end + static_cast<int64_t>(random() % static_cast<uint64_t>(noise_ns + 1));
      if (static_cast<int>(random() % 10) < odd) left += 3'000'000;
      const int64_t came = end - 1'000'000 - static_cast<int64_t>(random() % 2'000'000);
      const auto shown = [&](int64_t t) {
        return kStart + t +
               static_cast<int64_t>(offset_ns[static_cast<size_t>(r)] +
                                    drift[static_cast<size_t>(r)] * static_cast<double>(t));
      };
      call.start_ns = shown(came);
      call.end_ns = shown(left);
      call.op = CollectiveOp::kAllReduce;
      call.bytes_in = 100 + c % 7;
      if (numbered) call.sequence = c;
      result.timelines[static_cast<size_t>(r)].calls.push_back(call);
    }
  }
  return result;
}

// Oracle: closed form. What was added to the clocks is found again, to within the noise of the ends.
TEST(Clocks, OffsetAndDriftAreFound) {
  const std::vector<double> offset = {0, 2.5e6, -7e9, 1234};
  const std::vector<double> drift = {0, 40e-6, -15e-6, 0};
  for (const int odd : {0, 2}) {
    Job made = job(4, 600, offset, drift, 4000, odd, true);
    const std::vector<Match> matches = match_calls(made.timelines);
    ASSERT_EQ(matches.size(), 600U);
    const std::vector<ClockFit> fits = fit_clocks(made.timelines, matches);
    apply_clocks(fits, made.timelines);
    for (size_t r = 1; r < 4; ++r) {
      EXPECT_TRUE(fits[r].aligned);
      EXPECT_NEAR(fits[r].drift * 1e6, drift[r] * 1e6, 1.0) << "rank " << r << ", odd " << odd;
      if (odd == 0) {
        EXPECT_LT(fits[r].residual_p95_us, 8) << r;
      }
      EXPECT_LT(fits[r].residual_median_us, 4) << r;
      std::vector<int64_t> left;
      for (size_t c = 0; c < 600; ++c)
        left.push_back(std::abs(made.timelines[r].calls[c].end_ns - made.timelines[0].calls[c].end_ns));
      std::nth_element(left.begin(), left.begin() + 300, left.end());
      EXPECT_LT(left[300], 4000) << r;  // ns
    }
  }
}

// Positions, not numbers: rank 1's file begins 13 calls later, and its clock is 40 ms ahead.
TEST(Clocks, CallsWithoutNumbersAreLaidOverEachOther) {
  Job made = job(2, 100, {0, 40e6}, {0, 0}, 0, 0, false);
  made.timelines[1].calls.erase(made.timelines[1].calls.begin(), made.timelines[1].calls.begin() + 13);
  for (size_t r = 0; r < 2; ++r) {
    for (int s = 0; s < 10; ++s) {
      const int64_t at = 1'790'000'000'000'000'000 + (r == 1 ? 40'000'000 : 0) + int64_t{100'000'000} * s;
      made.timelines[r].steps.push_back({s, at, at + 100'000'000});
    }
  }
  const std::vector<Match> matches = match_calls(made.timelines);
  ASSERT_EQ(matches.size(), 87U);
  for (const Match& match : matches) EXPECT_EQ(match.members[0].call, match.members[1].call + 13);
  EXPECT_NEAR(fit_clocks(made.timelines, matches)[1].offset_ns, 40e6, 1);
}

TEST(Clocks, ARankThatSharesNoCollectiveIsNotAligned) {
  Job made = job(3, 20, {0, 0, 0}, {0, 0, 0}, 0, 0, true);
  made.timelines[2].groups[0].key = "alone";
  const std::vector<ClockFit> fits = fit_clocks(made.timelines, match_calls(made.timelines));
  EXPECT_TRUE(fits[1].aligned);
  EXPECT_FALSE(fits[2].aligned);
}

// Two groups of a mesh: ranks 0 and 1 meet, and 1 and 2; rank 2 is aligned through rank 1.
TEST(Clocks, OffsetsGoAlongTheGroups) {
  Job made = job(3, 40, {0, 5e6, -3e6}, {0, 0, 0}, 0, 0, true);
  made.timelines[1].groups.push_back({"other", "other", {}, 2});
  for (size_t c = 0; c < 40; ++c) made.timelines[1].calls[c].group = c % 2 == 0 ? 0 : 1;
  made.timelines[2].groups[0].key = "other";
  const std::vector<ClockFit> fits = fit_clocks(made.timelines, match_calls(made.timelines));
  EXPECT_NEAR(fits[1].offset_ns, 5e6, 1);
  EXPECT_NEAR(fits[2].offset_ns, -3e6, 1);
}

// Oracle: causality. The clock of a host is shared, so nothing is corrected, unless calls would then end before they began elsewhere.
TEST(Clocks, OneHostIsOneClockUnlessTheCallsSayOtherwise) {
  Job same = job(2, 50, {0, 0}, {0, 0}, 900'000, 0, true);
  Job lying = job(2, 50, {0, 1e9}, {0, 0}, 900'000, 0, true);
  for (Job* one : {&same, &lying}) {
    for (Timeline& timeline : one->timelines) timeline.host = "localhost";
  }
  EXPECT_TRUE(fit_clocks(same.timelines, match_calls(same.timelines))[1].same_clock);
  EXPECT_EQ(fit_clocks(same.timelines, match_calls(same.timelines))[1].offset_ns, 0);
  const ClockFit fit = fit_clocks(lying.timelines, match_calls(lying.timelines))[1];
  EXPECT_FALSE(fit.same_clock);
  EXPECT_NEAR(fit.offset_ns, 1e9, 1e6);
}

}  // namespace
}  // namespace trireme::trace
