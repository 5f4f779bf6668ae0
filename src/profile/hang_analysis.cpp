#include "profile/hang_analysis.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "base/str.h"
#include "profile/call_kinds.h"
#include "profile/call_lanes.h"

namespace trireme::profile {
namespace {

/// A call that a rank is in at this moment.
struct Pending {
  LaneKey lane;
  const TraceRecord* record = nullptr;
  std::vector<int> missing;  ///< global ranks that it waits for
};

struct RankCalls {
  const TraceSnapshot* trace = nullptr;
  Lanes lanes;
  std::vector<Pending> pending;
};

/// The lane in which others meet the calls of this one.
LaneKey counterpart(const LaneKey& lane) {
  LaneKey other = lane;
  if (lane.is_message()) other.receiving = !lane.receiving;
  return other;
}

class Analysis {
 public:
  explicit Analysis(const HangInputs& inputs) : inputs_(inputs) {
    for (const TraceSnapshot& trace : inputs.traces) {
      RankCalls& rank = ranks_[trace.rank];
      rank.trace = &trace;
      rank.lanes = sort_into_lanes(trace);
    }
    for (auto& [rank, calls] : ranks_) {
      for (const auto& [key, lane] : calls.lanes) {
        for (const TraceRecord* record : lane) {
          if (!is_in(*record, CallState::kStarted)) continue;
          calls.pending.push_back({key, record, missing_in(rank, key, record->call)});
        }
      }
    }
  }

  HangFinding run() {
    collect_stalled_calls();
    for (const StalledCall& call : finding_.calls) {
      for (const int rank : call.late) follow(rank);
    }
    if (finding_.culprits.empty()) finding_.circle.assign(followed_.begin(), followed_.end());
    std::sort(finding_.culprits.begin(), finding_.culprits.end(),
              [](const Culprit& a, const Culprit& b) { return a.rank < b.rank; });
    return std::move(finding_);
  }

 private:
  [[nodiscard]] const Lane* lane_of(int rank, const LaneKey& key) const {
    const auto calls = ranks_.find(rank);
    if (calls == ranks_.end()) return nullptr;
    const auto lane = calls->second.lanes.find(key);
    return lane == calls->second.lanes.end() ? nullptr : &lane->second;
  }

  /// Those who have to take part in this call of `rank` and have not come to it, or came and cannot go on.
  [[nodiscard]] std::vector<int> missing_in(int rank, const LaneKey& key, uint64_t call) const {
    const std::vector<int> peer = {key.receiving ? key.sender : key.receiver};
    const LaneKey their_key = counterpart(key);
    std::vector<int> missing;
    for (const int other : key.is_message() ? peer : key.group.ranks) {
      if (other == rank || other >= inputs_.num_ranks) continue;
      const Lane* lane = lane_of(other, their_key);
      const TraceRecord* theirs = lane != nullptr ? find_call(*lane, call) : nullptr;
      const bool has_come = lane != nullptr && last_entered(*lane) >= call;
      const bool is_stuck_in_it =
          theirs != nullptr && is_in(*theirs, CallState::kStarted) && inputs_.cannot_go.contains(other);
      if (!has_come || is_stuck_in_it) missing.push_back(other);
    }
    std::sort(missing.begin(), missing.end());
    return missing;
  }

  void collect_stalled_calls() {
    std::map<std::pair<LaneKey, uint64_t>, StalledCall> calls;
    for (const auto& [rank, state] : ranks_) {
      for (const Pending& pending : state.pending) {
        const TraceRecord& record = *pending.record;
        if (pending.missing.empty() || record.started_ns + inputs_.limit_ns > inputs_.now_ns) continue;
        StalledCall& call = calls[{pending.lane, record.call}];
        if (call.what.empty()) {
          call.group = pending.lane.group.name;
          call.call = record.call;
          call.what = describe_call(*state.trace, record);
        }
        call.step = std::max(call.step, record.step);
        // One that cannot go on itself is in the call, and late for the others; each rank misses all but itself.
        if (!inputs_.cannot_go.contains(rank)) call.waiting.push_back(rank);
        std::vector<int> late;
        std::set_union(call.late.begin(), call.late.end(), pending.missing.begin(), pending.missing.end(),
                       std::back_inserter(late));
        call.late = std::move(late);
        call.waited_s = std::max(call.waited_s, static_cast<double>(inputs_.now_ns - record.started_ns) * 1e-9);
      }
    }
    for (auto& [key, call] : calls) {
      if (call.waiting.empty()) continue;  // of those that could wait, nobody does
      find_last_common(key.first, call);
      finding_.calls.push_back(std::move(call));
    }
    std::stable_sort(finding_.calls.begin(), finding_.calls.end(),
                     [](const StalledCall& a, const StalledCall& b) { return a.waited_s > b.waited_s; });
  }

  void find_last_common(const LaneKey& key, StalledCall& call) const {
    std::optional<uint64_t> common;
    const std::vector<int> ends = {key.sender, key.receiver};
    LaneKey own = key;
    for (const int rank : key.is_message() ? ends : key.group.ranks) {
      if (rank >= inputs_.num_ranks) continue;
      if (key.is_message()) own.receiving = rank == key.receiver;
      const Lane* lane = lane_of(rank, own);
      const uint64_t finished = lane != nullptr ? last_finished(*lane) : 0;
      common = common ? std::min(*common, finished) : finished;
    }
    call.last_common = common.value_or(0);
    for (const auto& [rank, state] : ranks_) {
      const Lane* lane = lane_of(rank, key);
      const TraceRecord* record = lane != nullptr ? find_call(*lane, call.last_common) : nullptr;
      if (record == nullptr) continue;
      call.last_common_what = describe_call(*state.trace, *record);
      return;
    }
  }

  /// To those at the ends of the chains of waiting.
  void follow(int rank) {
    if (!followed_.insert(rank).second) return;
    const auto found = ranks_.find(rank);
    if (found == ranks_.end() || inputs_.cannot_go.contains(rank)) return add_culprit(rank, nullptr);
    const RankCalls& state = found->second;
    if (state.pending.empty()) return add_culprit(rank, nullptr);
    bool waits = false;
    for (const Pending& pending : state.pending) {
      if (pending.missing.empty()) continue;
      waits = true;
      finding_.links.push_back(str("rank ", rank, " waits for ", pending.missing.size() == 1 ? "rank " : "ranks ",
                                   join(pending.missing), " in ", place(state, pending)));
      for (const int other : pending.missing) follow(other);
    }
    if (!waits) add_culprit(rank, &state.pending.front());
  }

  [[nodiscard]] static std::string place(const RankCalls& state, const Pending& pending) {
    return str("call ", pending.record->call, " of group '", pending.lane.group.name, "', ",
               describe_call(*state.trace, *pending.record));
  }

  void add_culprit(int rank, const Pending* pending) {
    Culprit culprit;
    culprit.rank = rank;
    if (pending != nullptr) {
      culprit.in_a_call = true;
      culprit.call = place(ranks_.at(rank), *pending);
    }
    finding_.culprits.push_back(std::move(culprit));
  }

  const HangInputs& inputs_;
  std::map<int, RankCalls> ranks_;
  std::set<int> followed_;
  HangFinding finding_;
};

}  // namespace

std::string describe_call(const TraceSnapshot& trace, const TraceRecord& record) {
  CallWords words;
  words.op = op_of(record);
  words.dtype = static_cast<DType>(record.dtype);
  words.reduce = static_cast<ReduceKind>(record.reduce);
  words.num_dims = record.num_dims;
  words.dims = record.dims;
  words.root = record.root;
  if (record.group < trace.group_ranks.size()) words.group_ranks = trace.group_ranks[record.group];
  words.label = label_of(record);
  return describe(words);
}

HangFinding find_hang(const HangInputs& inputs) { return Analysis(inputs).run(); }

}  // namespace trireme::profile
