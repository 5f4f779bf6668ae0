#include "trace/shares.h"

#include <algorithm>
#include <array>

#include "profile/lateness.h"

namespace trireme::trace {
namespace {

/// A span or a wait begins or ends.
struct Edge {
  int64_t time_ns = 0;
  uint16_t lane = 0;
  Activity activity = Activity::kCompute;
  int8_t delta = 0;
  int32_t awaited = -1;  // of a wait; -1: a span
};

/// What is open on one lane.
using LaneCount = std::array<int32_t, kNumActivities>;

/// The one activity that a lane counts for; kNumActivities: none.
int activity_of(const LaneCount& open) {
  const auto any = [&open](Activity activity) { return open[static_cast<size_t>(activity)] > 0; };
  for (const Activity activity : {Activity::kCommunication, Activity::kDataWait, Activity::kCompute, Activity::kCopy}) {
    if (any(activity)) return static_cast<int>(activity);
  }
  return kNumActivities;
}

class Sweep {
 public:
  Sweep(size_t num_lanes, std::vector<Segment>& segments) : lanes_(num_lanes), segments_(segments) {}

  void apply(const Edge& edge) {
    advance(edge.time_ns);
    if (edge.awaited >= 0) {
      if (edge.delta > 0) {
        awaited_.push_back(edge.awaited);
      } else {
        const auto found = std::find(awaited_.rbegin(), awaited_.rend(), edge.awaited);
        if (found != awaited_.rend()) awaited_.erase(std::next(found).base());
      }
      return;
    }
    LaneCount& lane = lanes_[edge.lane];
    const int before = activity_of(lane);
    lane[static_cast<size_t>(edge.activity)] += edge.delta;
    const int after = activity_of(lane);
    if (before == after) return;
    if (before < kNumActivities) --active_[static_cast<size_t>(before)];
    if (after < kNumActivities) ++active_[static_cast<size_t>(after)];
  }

 private:
  void advance(int64_t now) {
    if (now <= time_ns_) return;
    Segment next{time_ns_, now, Share::kGap, false, -1};
    time_ns_ = now;
    const bool communicates = active_[static_cast<size_t>(Activity::kCommunication)] > 0;
    if (active_[static_cast<size_t>(Activity::kCompute)] > 0) {
      next.share = Share::kCompute;
      next.overlapped = communicates;
    } else if (communicates) {
      next.share = awaited_.empty() ? Share::kExposed : Share::kImbalance;
      if (!awaited_.empty()) next.awaited = awaited_.back();
    } else if (active_[static_cast<size_t>(Activity::kCopy)] > 0) {
      next.share = Share::kCopy;
    } else if (active_[static_cast<size_t>(Activity::kDataWait)] > 0) {
      next.share = Share::kDataWait;
    } else {
      return;
    }
    if (!segments_.empty()) {
      Segment& last = segments_.back();
      if (last.end_ns == next.start_ns && last.share == next.share && last.overlapped == next.overlapped &&
          last.awaited == next.awaited) {
        last.end_ns = now;
        return;
      }
    }
    segments_.push_back(next);
  }

  std::vector<LaneCount> lanes_;
  std::array<int32_t, kNumActivities> active_{};
  std::vector<int32_t> awaited_;
  int64_t time_ns_ = INT64_MIN;
  std::vector<Segment>& segments_;
};

}  // namespace

std::vector<std::vector<Wait>> waits_of(const std::vector<Timeline>& timelines, const std::vector<Match>& matches,
                                        const std::vector<ClockFit>& fits) {
  std::vector<std::vector<Wait>> waits(timelines.size());
  for (const Match& match : matches) {
    if (!synchronises(match.op)) continue;
    const Member* last = last_to_come(match, timelines, fits);
    if (last == nullptr) continue;
    const int64_t latest = timelines[last->rank].calls[last->call].start_ns;
    double uncertain_us = 0;
    for (const Member& member : match.members) {
      const ClockFit& fit = fits[member.rank];
      if (fit.aligned && !fit.same_clock) uncertain_us = std::max(uncertain_us, fit.residual_median_us);
    }
    for (const Member& member : match.members) {
      if (!fits[member.rank].aligned || &member == last) continue;
      const Call& call = timelines[member.rank].calls[member.call];
      const int64_t waited = profile::waited_ns(call.start_ns, call.end_ns, latest);
      if (static_cast<double>(waited) <= uncertain_us * 1e3) continue;
      waits[member.rank].push_back({call.start_ns, call.start_ns + waited, static_cast<int32_t>(last->rank)});
    }
  }
  return waits;
}

std::vector<Segment> segments_of(const Timeline& timeline, const std::vector<Wait>& waits) {
  std::vector<Edge> edges;
  edges.reserve(2 * (timeline.spans.size() + waits.size()));
  for (const Span& span : timeline.spans) {
    if (span.end_ns <= span.start_ns) continue;
    edges.push_back({span.start_ns, span.lane, span.activity, 1, -1});
    edges.push_back({span.end_ns, span.lane, span.activity, -1, -1});
  }
  for (const Wait& wait : waits) {
    if (wait.end_ns <= wait.start_ns) continue;
    edges.push_back({wait.start_ns, 0, Activity::kCommunication, 1, wait.awaited});
    edges.push_back({wait.end_ns, 0, Activity::kCommunication, -1, wait.awaited});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.time_ns < b.time_ns; });
  std::vector<Segment> segments;
  Sweep sweep(timeline.lanes.size(), segments);
  for (const Edge& edge : edges) sweep.apply(edge);
  return segments;
}

std::vector<StepShares> shares_of(const Timeline& timeline, const std::vector<Segment>& segments,
                                  size_t num_timelines) {
  std::vector<StepShares> steps;
  for (const Step& step : timeline.steps) {
    StepShares shares;
    shares.number = step.number;
    shares.total_ns = step.end_ns - step.start_ns;
    shares.waits_ns.assign(num_timelines, 0);
    int64_t rest = shares.total_ns;
    auto at = std::partition_point(segments.begin(), segments.end(),
                                   [&step](const Segment& one) { return one.end_ns <= step.start_ns; });
    for (; at != segments.end() && at->start_ns < step.end_ns; ++at) {
      const int64_t inside = std::min(at->end_ns, step.end_ns) - std::max(at->start_ns, step.start_ns);
      shares.share_ns[static_cast<size_t>(at->share)] += inside;
      if (at->overlapped) shares.overlapped_ns += inside;
      if (at->awaited >= 0) shares.waits_ns[static_cast<size_t>(at->awaited)] += inside;
      rest -= inside;
    }
    shares.share_ns[static_cast<size_t>(Share::kGap)] = rest;
    auto call = std::partition_point(timeline.operators.begin(), timeline.operators.end(),
                                     [&step](const OperatorCall& one) { return one.time_ns < step.start_ns; });
    for (; call != timeline.operators.end() && call->time_ns < step.end_ns; ++call) shares.flops += call->flops;
    steps.push_back(std::move(shares));
  }
  return steps;
}

}  // namespace trireme::trace
