#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/str.h"
#include "diagnose/job/compare_trails.h"

namespace trireme::diagnose {
namespace {

bool pending(const Call& call) { return call.phase != CallPhase::kFinished; }

bool old_enough(const Call& call, const CompareOptions& options) {
  return !options.live_now_ns || *options.live_now_ns - call.created_ns >= options.patience_ns;
}

const Call* first_pending(const GroupTrail& row, const CompareOptions& options) {
  for (const Call& call : row.calls) {
    if (pending(call)) return old_enough(call, options) ? &call : nullptr;
  }
  return nullptr;
}

/// How many sends (`sends` true) or receives each rank has made with each peer.
using MessageCounts = std::map<std::tuple<int, int, bool>, size_t>;

MessageCounts count_messages(const TrailBook& book, const GroupRows& group) {
  MessageCounts counts;
  for (const auto& [rank, row] : group.rows) {
    for (const Call& call : row->point_to_point) {
      const Signature& one = book.at(call);
      ++counts[{rank, book.global_rank(group.key, one.root), one.kind == "send"}];
    }
  }
  return counts;
}

/// Sends and receives whose other side was not made. The k-th send of a pair meets the k-th receive.
void pair_waits(const TrailBook& book, const GroupRows& group, const MessageCounts& counts, int rank,
                const GroupTrail& row, const CompareOptions& options, std::vector<Wait>& waits) {
  std::map<std::pair<std::string, int>, size_t> position;
  for (const Call& call : row.point_to_point) {
    const Signature& mine = book.at(call);
    const int peer = book.global_rank(group.key, mine.root);
    const size_t index = position[{mine.kind, peer}]++;
    if (!pending(call) || !old_enough(call, options)) continue;
    const auto other = group.rows.find(peer);
    if (other == group.rows.end()) {  // no dump of the peer: which is said apart, as of collectives
      waits.push_back({rank, group.key, &call, {}});
      return;
    }
    const auto made = counts.find({peer, rank, mine.kind != "send"});
    if (made != counts.end() && made->second > index) continue;
    waits.push_back({rank, group.key, &call, {peer}});
    return;  // the first one holds up the rest
  }
}

}  // namespace

std::vector<Wait> find_waits(const TrailBook& book, const GroupRows& group, const CompareOptions& options) {
  std::vector<Wait> waits;
  const MessageCounts counts = count_messages(book, group);
  // By how far they have come: of thousands of ranks most wait for few. A member without a dump may be the one, which is said apart.
  std::vector<std::pair<int64_t, int>> progress;
  for (const auto& [rank, row] : group.rows) progress.emplace_back(row->last(), rank);
  std::sort(progress.begin(), progress.end());
  for (const auto& [rank, row] : group.rows) {
    pair_waits(book, group, counts, rank, *row, options, waits);
    const Call* call = first_pending(*row, options);
    if (call == nullptr) continue;
    Wait wait{rank, group.key, call, {}};
    for (const auto& [last, member] : progress) {
      if (last >= call->number) break;
      if (member != rank) wait.for_ranks.push_back(member);
    }
    std::sort(wait.for_ranks.begin(), wait.for_ranks.end());
    waits.push_back(std::move(wait));
  }
  return waits;
}

std::vector<GroupRows> group_rows(const TrailBook& book, const CompareOptions& options) {
  static const GroupTrail kNothing{};
  std::vector<GroupRows> out;
  for (const auto& [key, info] : book.groups) {
    GroupRows group{key, info.name, info.ranks, {}, {}};
    if (group.members.empty()) {
      // Without a list of members: the ranks that were in it, and where the group is the only one, all ranks.
      for (const auto& [rank, trail] : book.trails) {
        if (trail.groups.count(key) > 0) group.members.push_back(rank);
      }
      if (book.groups.size() == 1 && options.world_size &&
          group.members.size() < static_cast<size_t>(*options.world_size)) {
        group.members.clear();
        for (int rank = 0; rank < *options.world_size; ++rank) group.members.push_back(rank);
      }
    }
    // A damaged list may name a rank a million times.
    std::set<int> seen;
    for (const int rank : group.members) {
      if (!seen.insert(rank).second) continue;
      const auto trail = book.trails.find(rank);
      if (trail == book.trails.end()) {
        group.no_dump.push_back(rank);
        continue;
      }
      const auto row = trail->second.groups.find(key);
      group.rows[rank] = row == trail->second.groups.end() ? &kNothing : &row->second;
    }
    if (!group.rows.empty()) out.push_back(std::move(group));
  }
  return out;
}

Evidence evidence_of(const TrailBook& book, int rank, const Call& call) {
  const auto trail = book.trails.find(rank);
  Evidence out;
  out.file = trail == book.trails.end() ? str("rank ", rank) : trail->second.file;
  out.text =
      str("record ", call.record, ": ", book.at(call).text(), ", call ", call.number, ", ", to_string(call.phase));
  if (call.step != 0) out.text += str(", step ", call.step);
  if (call.where != 0) out.text += ", called at " + book.places[call.where];
  return out;
}

std::string rank_list(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return str("rank ", ranks.front());
  const bool in_a_row = ranks.size() > 3 && ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1;
  if (in_a_row) return str("ranks ", ranks.front(), " to ", ranks.back());
  constexpr size_t kShown = 16;
  if (ranks.size() <= kShown) return "ranks " + join(ranks);
  return str("ranks ", join(std::vector<int>(ranks.begin(), ranks.begin() + kShown)), " and ", ranks.size() - kShown,
             " more");
}

}  // namespace trireme::diagnose
