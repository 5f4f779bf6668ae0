#include "profile/lateness.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "profile/call_lanes.h"

namespace trireme::profile {
namespace {

/// Times of a damaged file may be anything. Later than nine years after the start of the machine is none, and sums stop before they overflow.
constexpr uint64_t kLatest = uint64_t{1} << 58;
constexpr int64_t kMostSum = int64_t{1} << 60;

int64_t plus(int64_t sum, int64_t more) {
  int64_t all = 0;
  if (__builtin_add_overflow(sum, more, &all)) return more < 0 ? -kMostSum : kMostSum;
  return std::clamp(all, -kMostSum, kMostSum);
}

struct Interval {
  int64_t start = 0;
  int64_t end = 0;
};

/// Sorted, without overlaps.
class Intervals {
 public:
  void add(int64_t start, int64_t end) { all_.push_back({start, end}); }
  void settle() {
    std::sort(all_.begin(), all_.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
    std::vector<Interval> merged;
    for (const Interval& one : all_) {
      if (!merged.empty() && one.start <= merged.back().end) {
        merged.back().end = std::max(merged.back().end, one.end);
      } else {
        merged.push_back(one);
      }
    }
    all_ = std::move(merged);
  }
  [[nodiscard]] int64_t inside(int64_t from, int64_t to) const {
    if (to <= from) return 0;
    auto at = std::partition_point(all_.begin(), all_.end(), [from](const Interval& one) { return one.end <= from; });
    int64_t sum = 0;
    for (; at != all_.end() && at->start < to; ++at) sum += std::min(at->end, to) - std::max(at->start, from);
    return sum;
  }

 private:
  std::vector<Interval> all_;
};

bool is_whole(const TraceRecord& record) {
  return is_in(record, CallState::kFinished) && record.started_ns > 0 && record.started_ns <= record.finished_ns &&
         record.finished_ns < kLatest;
}

bool synchronises(OpKind op) {
  return op == OpKind::kBarrier || op == OpKind::kAllReduce || op == OpKind::kAllGather ||
         op == OpKind::kReduceScatter || op == OpKind::kAllToAll;
}

int64_t start_of(const TraceRecord& record) { return static_cast<int64_t>(record.started_ns); }
int64_t end_of(const TraceRecord& record) { return static_cast<int64_t>(record.finished_ns); }

/// What has to be added to the times of one clock for those of another, as it changes: quartzes differ by some 50 millionths, which over the hours
/// that a ring may span is more than a step.
class ClockOffsets {
 public:
  void add(int64_t time, int64_t difference) { differences_.emplace_back(time, difference); }
  void settle() {
    constexpr size_t kTogether = 64;
    std::sort(differences_.begin(), differences_.end());
    for (size_t from = 0; from < differences_.size(); from += kTogether) {
      const size_t to = std::min(from + kTogether, differences_.size());
      std::vector<int64_t> some;
      for (size_t i = from; i < to; ++i) some.push_back(differences_[i].second);
      const auto middle = some.begin() + static_cast<std::ptrdiff_t>(some.size() / 2);
      std::nth_element(some.begin(), middle, some.end());
      offsets_.emplace_back(differences_[from].first, *middle);
    }
    differences_.clear();
  }
  [[nodiscard]] int64_t at(int64_t time) const {
    if (offsets_.empty()) return 0;
    const auto next = std::upper_bound(offsets_.begin(), offsets_.end(), std::pair(time, INT64_MAX));
    return next == offsets_.begin() ? next->second : std::prev(next)->second;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> differences_;
  std::vector<std::pair<int64_t, int64_t>> offsets_;  ///< from this time on
};

struct Rank {
  Lanes lanes;
  Intervals data;
  Intervals calls;
  std::map<uint32_t, int64_t> step_ends;  ///< end of the last call of each step
  bool closed = false;
  ClockOffsets to_first;  ///< to the first trace's clock
};

Rank make_rank(const TraceSnapshot& trace) {
  Rank rank;
  rank.lanes = sort_into_lanes(trace);
  rank.closed = trace.closed;
  for (const DataWaitSpan& wait : trace.data_waits) {
    rank.data.add(static_cast<int64_t>(wait.start_ns), static_cast<int64_t>(wait.end_ns));
  }
  for (const TraceRecord& record : trace.records) {
    if (!is_whole(record)) continue;
    rank.calls.add(start_of(record), end_of(record));
    int64_t& end = rank.step_ends.try_emplace(record.step, 0).first->second;
    end = std::max(end, end_of(record));
  }
  rank.data.settle();
  rank.calls.settle();
  return rank;
}

/// By how much this one is more than the mean of the others.
int64_t more_than_others(const std::vector<int64_t>& values, size_t index) {
  double sum = 0;
  for (const int64_t value : values) sum += static_cast<double>(values[index] - value);
  return static_cast<int64_t>(sum / static_cast<double>(values.size() - 1));
}

class Steps {
 public:
  Steps(const std::vector<TraceSnapshot>& traces, uint32_t after_step) : traces_(traces), after_step_(after_step) {
    for (size_t i = 0; i < traces.size(); ++i) {
      ranks_.push_back(make_rank(traces[i]));
      index_[traces[i].rank] = i;
    }
  }

  std::vector<StepLateness> run() {
    align_other_hosts();
    find_whole_steps();
    if (steps_.empty()) return {};
    for (const auto& [key, lane] : ranks_.front().lanes) add_lane(key);
    // Groups without the first trace's rank.
    for (size_t i = 1; i < ranks_.size(); ++i) {
      for (const auto& [key, lane] : ranks_[i].lanes) {
        if (!key.group.ranks.empty() && first_member(key) == i) add_lane(key);
      }
    }
    std::vector<StepLateness> out;
    for (auto& [number, step] : steps_) out.push_back(std::move(step));
    return out;
  }

 private:
  /// Of those in the group the one whose trace is first; ranks_.size(): not all have one.
  [[nodiscard]] size_t first_member(const LaneKey& key) const {
    size_t first = ranks_.size();
    for (const int rank : key.group.ranks) {
      const auto at = index_.find(rank);
      if (at == index_.end()) return ranks_.size();
      first = std::min(first, at->second);
    }
    return first;
  }

  void align_other_hosts() {
    for (size_t i = 1; i < ranks_.size(); ++i) {
      if (traces_[i].host == traces_[0].host) continue;
      for (const auto& [key, lane] : ranks_[0].lanes) {
        const auto other = ranks_[i].lanes.find(key);
        if (key.is_message() || other == ranks_[i].lanes.end()) continue;
        for (const TraceRecord* record : lane) {
          const TraceRecord* same = find_call(other->second, record->call);
          if (same == nullptr || !is_whole(*record) || !is_whole(*same) || !synchronises(op_of(*record))) continue;
          ranks_[i].to_first.add(end_of(*same), end_of(*record) - end_of(*same));
        }
      }
      ranks_[i].to_first.settle();
    }
  }

  /// A step is whole where the one before and the one after it are there too, on all ranks that name steps at all.
  void find_whole_steps() {
    struct Found {
      size_t num_ranks = 0;  // that have it whole
      uint32_t before = 0;
      double sum_ns = 0;
    };
    std::map<uint32_t, Found> found;
    size_t num_stepping = 0;
    for (const Rank& rank : ranks_) {
      const auto& ends = rank.step_ends;
      if (ends.empty() || ends.rbegin()->first == 0) continue;
      ++num_stepping;
      for (auto at = ends.begin(); at != ends.end(); ++at) {
        if (at == ends.begin() || (std::next(at) == ends.end() && !rank.closed) || at->first <= after_step_) continue;
        Found& one = found[at->first];
        ++one.num_ranks;
        one.before = std::prev(at)->first;
        one.sum_ns += static_cast<double>(at->second - std::prev(at)->second);
      }
    }
    for (const auto& [number, one] : found) {
      if (one.num_ranks != num_stepping || one.sum_ns <= 0) continue;
      const auto duration = static_cast<int64_t>(one.sum_ns / static_cast<double>(num_stepping));
      steps_[number] = {number, one.before, duration, std::vector<Lateness>(ranks_.size())};
    }
  }

  void add_lane(const LaneKey& key) {
    if (key.is_message() || key.group.ranks.size() < 2 || first_member(key) == ranks_.size()) return;
    std::vector<size_t> members;
    std::vector<const Lane*> lanes;
    for (const int rank : key.group.ranks) {
      members.push_back(index_.at(rank));
      const auto lane = ranks_[members.back()].lanes.find(key);
      if (lane == ranks_[members.back()].lanes.end()) return;
      lanes.push_back(&lane->second);
    }
    for (const TraceRecord* record : *lanes.front()) {
      if (record->call < 2 || !synchronises(op_of(*record))) continue;
      const auto step = steps_.find(record->step);
      if (step == steps_.end()) continue;
      std::vector<const TraceRecord*> calls;
      std::vector<const TraceRecord*> before;
      for (const Lane* lane : lanes) {
        calls.push_back(find_call(*lane, record->call));
        before.push_back(find_call(*lane, record->call - 1));
      }
      const auto there = [](const TraceRecord* one) { return one != nullptr && is_whole(*one); };
      if (std::all_of(calls.begin(), calls.end(), there) && std::all_of(before.begin(), before.end(), there)) {
        add_call(members, calls, before, step->second);
      }
    }
  }

  void add_call(const std::vector<size_t>& members, const std::vector<const TraceRecord*>& calls,
                const std::vector<const TraceRecord*>& before, StepLateness& step) {
    std::vector<int64_t> arrivals, left, data, elsewhere;
    for (size_t m = 0; m < members.size(); ++m) {
      const Rank& rank = ranks_[members[m]];
      const int64_t from = end_of(*before[m]);
      const int64_t to = start_of(*calls[m]);
      const int64_t offset = rank.to_first.at(to);
      arrivals.push_back(to + offset);
      left.push_back(from + offset);
      data.push_back(rank.data.inside(from, to));
      elsewhere.push_back(rank.calls.inside(from, to));
    }
    const size_t last = last_to_come(arrivals);
    Lateness& sum = step.ranks[members[last]];
    const int64_t late = more_than_others(arrivals, last);
    const int64_t waited_for_data = more_than_others(data, last);
    const int64_t communication = more_than_others(left, last) + more_than_others(elsewhere, last);
    sum.late_ns = plus(sum.late_ns, late);
    sum.data_ns = plus(sum.data_ns, waited_for_data);
    sum.communication_ns = plus(sum.communication_ns, communication);
    sum.compute_ns = plus(sum.compute_ns, late - waited_for_data - communication);
  }

  const std::vector<TraceSnapshot>& traces_;
  const uint32_t after_step_;
  std::vector<Rank> ranks_;
  std::map<int, size_t> index_;
  std::map<uint32_t, StepLateness> steps_;
};

}  // namespace

size_t last_to_come(std::span<const int64_t> arrivals) {
  return static_cast<size_t>(std::max_element(arrivals.begin(), arrivals.end()) - arrivals.begin());
}

int64_t waited_ns(int64_t start, int64_t end, int64_t latest) {
  return std::max<int64_t>(std::min(end, latest) - start, 0);
}

std::vector<StepLateness> lateness_of_steps(const std::vector<TraceSnapshot>& traces, uint32_t after_step) {
  if (traces.size() < 2) return {};
  return Steps(traces, after_step).run();
}

}  // namespace trireme::profile
