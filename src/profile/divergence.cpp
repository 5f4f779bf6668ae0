#include "profile/divergence.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/str.h"
#include "profile/call_lanes.h"
#include "profile/hang_analysis.h"

namespace trireme::profile {
namespace {

struct Signature {
  std::array<int64_t, 11> fields{};
  std::string label;
  auto operator<=>(const Signature&) const = default;
};

/// What ranks must agree on. The two ends of a message agree on its type and length, the members of an all_to_all on no shape.
Signature signature_of(const TraceRecord& record, bool message) {
  Signature signature;
  auto& f = signature.fields;
  f[0] = record.dtype;
  if (message) {
    f[1] = static_cast<int64_t>(record.bytes);
    return signature;
  }
  f[2] = record.op;
  f[3] = record.reduce;
  f[4] = record.root;
  signature.label = std::string(label_of(record));
  if (op_of(record) == OpKind::kAllToAll) return signature;
  f[5] = record.num_dims;
  std::copy(std::begin(record.dims), std::end(record.dims), f.begin() + 6);
  return signature;
}

/// As above with the lengths, which a rank usually repeats from step to step.
Signature habit_of(const TraceRecord& record, bool message) {
  Signature signature = signature_of(record, message);
  signature.fields[1] = static_cast<int64_t>(record.bytes);
  return signature;
}

const char* difference_of(const TraceRecord& a, const TraceRecord& b, bool message) {
  if (a.dtype != b.dtype) return "the dtypes differ";
  if (message) return "the numbers of elements differ";
  if (a.op != b.op) return "the operations differ";
  if (a.reduce != b.reduce) return "the reductions differ";
  if (a.root != b.root) return "the roots differ";
  if (label_of(a) != label_of(b)) return "the labels differ";
  return "the shapes differ";
}

/// One rank's way through a lane.
struct Walk {
  const TraceSnapshot* trace = nullptr;
  const Lane* lane = nullptr;
  std::map<uint32_t, std::vector<const TraceRecord*>> by_step;
};

/// Ranks that do the same are compared with themselves one step before.
enum class Habit { kUnknown, kAsBefore, kOtherwise };

class LaneComparison {
 public:
  LaneComparison(const LaneKey& key, std::vector<Walk> walks) : key_(key), walks_(std::move(walks)) {
    for (Walk& walk : walks_) {
      for (const TraceRecord* record : *walk.lane) walk.by_step[record->step].push_back(record);
    }
  }

  /// The time at which the ranks parted, and how; nothing when they did not.
  std::optional<std::pair<uint64_t, Divergence>> find() const {
    uint64_t first = 0;
    uint64_t last = UINT64_MAX;
    for (const Walk& walk : walks_) {
      if (walk.lane->empty()) return std::nullopt;
      first = std::max(first, walk.lane->front()->call);
      last = std::min(last, walk.lane->back()->call);
    }
    bool steps_agreed = false;
    // The calls of one rank, not all numbers between: those of a damaged file may be far apart.
    for (const TraceRecord* own : *walks_.front().lane) {
      const uint64_t call = own->call;
      if (call < first || call > last) continue;
      std::vector<const TraceRecord*> records;
      for (const Walk& walk : walks_) {
        if (const TraceRecord* record = find_call(*walk.lane, call)) records.push_back(record);
      }
      if (records.size() != walks_.size()) continue;
      const bool steps_agree =
          std::all_of(records.begin(), records.end(), [&](const auto* r) { return r->step == records[0]->step; });
      const bool agree = std::all_of(records.begin(), records.end(), [&](const auto* r) {
        return signature_of(*r, key_.is_message()) == signature_of(*records[0], key_.is_message());
      });
      // One whose own parts fit may have finished.
      const bool failed =
          std::any_of(records.begin(), records.end(), [](const auto* r) { return is_in(*r, CallState::kFailed); });
      const bool uneven = agree && failed && op_of(*records[0]) == OpKind::kAllToAll && habits_differ(records);
      if (!agree || uneven || (steps_agreed && !steps_agree)) return divergence_at(call, records, agree, uneven);
      steps_agreed = steps_agreed || (steps_agree && records[0]->step > 0);
    }
    return std::nullopt;
  }

 private:
  using Step = std::map<uint32_t, std::vector<const TraceRecord*>>::const_iterator;

  /// A step that the ring holds only a part of tells nothing.
  [[nodiscard]] static bool is_whole(const Walk& walk, Step step) {
    return step->first > 0 && (step != walk.by_step.begin() || walk.lane->front()->call <= 1);
  }

  /// Whether this step had more or fewer calls than the one before it.
  [[nodiscard]] static bool lengths_differ(const Walk& walk, Step step) {
    if (step == walk.by_step.begin()) return false;
    const auto earlier = std::prev(step);
    return is_whole(walk, earlier) && earlier->first + 1 == step->first &&
           earlier->second.size() != step->second.size();
  }

  [[nodiscard]] Habit habit(const Walk& walk, const TraceRecord& record) const {
    const auto now = walk.by_step.find(record.step);
    if (now == walk.by_step.begin() || record.step == 0) return Habit::kUnknown;
    const auto before = std::prev(now);
    const auto at =
        static_cast<size_t>(std::find(now->second.begin(), now->second.end(), &record) - now->second.begin());
    if (!is_whole(walk, before) || before->first + 1 != record.step) return Habit::kUnknown;
    if (at == 0 && lengths_differ(walk, before)) return Habit::kOtherwise;
    if (at >= before->second.size()) return Habit::kOtherwise;
    const bool same = habit_of(*before->second[at], key_.is_message()) == habit_of(record, key_.is_message());
    return same ? Habit::kAsBefore : Habit::kOtherwise;
  }

  [[nodiscard]] bool habits_differ(const std::vector<const TraceRecord*>& records) const {
    int otherwise = 0;
    for (size_t i = 0; i < walks_.size(); ++i) otherwise += habit(walks_[i], *records[i]) == Habit::kOtherwise ? 1 : 0;
    return otherwise > 0 && otherwise < static_cast<int>(walks_.size());
  }

  std::optional<std::pair<uint64_t, Divergence>> divergence_at(uint64_t call,
                                                               const std::vector<const TraceRecord*>& records,
                                                               bool agree, bool uneven) const {
    Divergence out;
    out.group = key_.group.name;
    out.call = call;
    std::map<std::pair<Signature, uint32_t>, std::vector<size_t>> sides;
    uint64_t when = UINT64_MAX;
    for (size_t i = 0; i < records.size(); ++i) {
      const Signature signature =
          uneven ? habit_of(*records[i], key_.is_message()) : signature_of(*records[i], key_.is_message());
      sides[{signature, agree && !uneven ? records[i]->step : 0}].push_back(i);
      when = std::min(when, records[i]->queued_ns);
    }
    const TraceRecord* first = records.front();
    const auto other = std::find_if(records.begin(), records.end(), [&](const TraceRecord* r) {
      return signature_of(*r, key_.is_message()) != signature_of(*first, key_.is_message());
    });
    out.difference = uneven  ? "what each sends is not what the other expects"
                     : agree ? "the steps differ: one rank made a call more, or one less, than the others before"
                             : difference_of(*first, **other, key_.is_message());
    std::vector<std::vector<size_t>> sorted;
    for (auto& [signature, members] : sides) sorted.push_back(std::move(members));
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    for (const std::vector<size_t>& members : sorted) {
      Divergence::Side side;
      for (const size_t i : members) side.ranks.push_back(walks_[i].trace->rank);
      side.what = describe_call(*walks_[members[0]].trace, *records[members[0]]);
      side.step = records[members[0]]->step;
      out.sides.push_back(std::move(side));
    }
    judge(records, sorted, out);
    return std::pair{when, std::move(out)};
  }

  void judge(const std::vector<const TraceRecord*>& records, const std::vector<std::vector<size_t>>& sides,
             Divergence& out) const {
    std::vector<size_t> otherwise;
    size_t as_before = 0;
    for (size_t i = 0; i < walks_.size(); ++i) {
      const Habit found = habit(walks_[i], *records[i]);
      if (found == Habit::kOtherwise) otherwise.push_back(i);
      if (found == Habit::kAsBefore) ++as_before;
    }
    if (!otherwise.empty() && as_before + otherwise.size() == walks_.size() && as_before > 0) {
      out.told_by = Divergence::ToldBy::kOwnPast;
    } else {
      otherwise.clear();
      if (sides[0].size() > walks_.size() - sides[0].size()) {
        out.told_by = Divergence::ToldBy::kMajority;
        for (size_t s = 1; s < sides.size(); ++s) otherwise.insert(otherwise.end(), sides[s].begin(), sides[s].end());
      }
    }
    std::sort(otherwise.begin(), otherwise.end());
    for (const size_t i : otherwise) out.odd.push_back(walks_[i].trace->rank);
    if (!otherwise.empty()) out.past = past_of(walks_[otherwise[0]], *records[otherwise[0]]);
  }

  [[nodiscard]] static std::string past_of(const Walk& walk, const TraceRecord& record) {
    const auto now = walk.by_step.find(record.step);
    if (now == walk.by_step.begin()) return {};
    const auto before = std::prev(now);
    const auto at =
        static_cast<size_t>(std::find(now->second.begin(), now->second.end(), &record) - now->second.begin());
    if (at == 0 && lengths_differ(walk, before)) {
      return str("it made ", before->second.size(), " calls in step ", before->first, " and ",
                 std::prev(before)->second.size(), " in the one before");
    }
    if (at >= before->second.size()) {
      return str("in step ", before->first, " it made only ", before->second.size(), " calls");
    }
    return str("in step ", before->first, " it called ", describe_call(*walk.trace, *before->second[at]), " there");
  }

  LaneKey key_;
  std::vector<Walk> walks_;
};

}  // namespace

std::string Divergence::words() const {
  const auto name = [](const std::vector<int>& ranks) {
    return str(ranks.size() == 1 ? "rank " : "ranks ", join(ranks));
  };
  std::vector<std::string> parts;
  for (const Side& side : sides) {
    parts.push_back(str(name(side.ranks), " called ", side.what, side.step > 0 ? str(" in step ", side.step) : ""));
  }
  std::string text =
      odd.empty() ? str("the ranks are out of step") : str(name(odd), odd.size() == 1 ? " is" : " are", " out of step");
  text += str(" in call ", call, " of group '", group, "': ", join(parts, "; "), "; ", difference, ".");
  if (told_by == ToldBy::kOwnPast) text += str(" Told by rank ", odd[0], "'s own past: ", past, ".");
  if (told_by == ToldBy::kNothing) text += " Nothing tells which of them is right.";
  return text;
}

std::optional<Divergence> find_divergence(const std::vector<TraceSnapshot>& traces) {
  std::map<int, Lanes> by_rank;
  std::map<int, const TraceSnapshot*> trace_of;
  std::map<LaneKey, std::vector<int>> members;  // messages: by the sender's key
  for (const TraceSnapshot& trace : traces) {
    trace_of[trace.rank] = &trace;
    by_rank[trace.rank] = sort_into_lanes(trace);
    for (const auto& [key, lane] : by_rank[trace.rank]) {
      LaneKey common = key;
      common.receiving = false;
      members[common].push_back(trace.rank);
    }
  }
  std::optional<std::pair<uint64_t, Divergence>> earliest;
  for (const auto& [key, ranks] : members) {
    if (ranks.size() < 2) continue;
    std::vector<Walk> walks;
    for (const int rank : ranks) {
      LaneKey own = key;
      own.receiving = key.is_message() && rank == key.receiver;
      walks.push_back({trace_of.at(rank), &by_rank.at(rank).at(own), {}});
    }
    auto found = LaneComparison(key, std::move(walks)).find();
    if (found && (!earliest || found->first < earliest->first)) earliest = std::move(found);
  }
  if (!earliest) return std::nullopt;
  return std::move(earliest->second);
}

}  // namespace trireme::profile
