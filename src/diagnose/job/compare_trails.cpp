#include "diagnose/job/compare_trails.h"

#include <algorithm>
#include <set>

#include "base/str.h"

namespace trireme::diagnose {
namespace {

/// The newest call of a rank over all groups, for "what did it do last".
struct LastCall {
  const Call* call = nullptr;
  std::string group;
};
LastCall last_call(const TrailBook& book, int rank) {
  LastCall out;
  const auto trail = book.trails.find(rank);
  if (trail == book.trails.end()) return out;
  for (const auto& [key, row] : trail->second.groups) {
    for (const std::vector<Call>* calls : {&row.calls, &row.point_to_point}) {
      if (calls->empty()) continue;
      const Call& newest = calls->back();
      if (out.call == nullptr || newest.created_ns > out.call->created_ns) out = {&newest, key};
    }
  }
  return out;
}

std::string told(const TrailBook& book, const std::string& group, const Call& call) {
  const auto info = book.groups.find(group);
  return str(book.at(call).text(), " (", book.at(call).is_point_to_point() ? "message " : "call ", call.number,
             " of group '", info == book.groups.end() ? group : info->second.name, "'",
             call.step == 0 ? "" : str(", step ", call.step), ")");
}

class Comparison {
 public:
  Comparison(const TrailBook& book, const CompareOptions& options)
      : book_(book), options_(options), groups_(group_rows(book, options)) {}

  std::vector<Finding> run() {
    std::vector<Finding> findings;
    for (const GroupRows& group : groups_) {
      int64_t number = 0;
      if (auto clash = find_clash(book_, group, &number)) {
        findings.push_back(std::move(*clash));
        continue;
      }
      for (Finding& fault : find_pair_faults(book_, group)) findings.push_back(std::move(fault));
    }
    if (!findings.empty()) return findings;
    for (const GroupRows& group : groups_) {
      for (Wait& wait : find_waits(book_, group, options_)) waits_.push_back(std::move(wait));
    }
    if (waits_.empty()) return findings;
    missing(findings);
    if (findings.empty()) circle(findings);
    if (findings.empty()) stalled(findings);
    no_dumps(findings);
    return findings;
  }

 private:
  [[nodiscard]] const GroupRows& group_of(const Wait& wait) const {
    return *std::find_if(groups_.begin(), groups_.end(),
                         [&](const GroupRows& group) { return group.key == wait.group; });
  }
  [[nodiscard]] std::set<int> waiting_ranks() const {
    std::set<int> waiting;
    for (const Wait& wait : waits_) {
      if (!wait.for_ranks.empty()) waiting.insert(wait.rank);
    }
    return waiting;
  }

  /// Ranks that others wait for and that wait for nobody: they do something else.
  void missing(std::vector<Finding>& findings) const {
    const std::set<int> waiting = waiting_ranks();
    std::set<int> culprits;
    for (const Wait& wait : waits_) {
      for (const int rank : wait.for_ranks) {
        if (!waiting.contains(rank)) culprits.insert(rank);
      }
    }
    if (culprits.empty()) return;
    // One finding for each call that is waited in, the earliest first: with several groups the same ranks show up again.
    std::set<int> named;
    for (const Wait& wait : waits_) {
      std::vector<int> absent;
      for (const int rank : wait.for_ranks) {
        if (culprits.count(rank) > 0 && named.count(rank) == 0) absent.push_back(rank);
      }
      if (absent.empty()) continue;
      named.insert(absent.begin(), absent.end());
      findings.push_back(missing_in(wait, absent));
    }
  }

  [[nodiscard]] Finding missing_in(const Wait& wait, const std::vector<int>& absent) const {
    Finding finding;
    finding.code = "calls.not_entered";
    finding.severity = Severity::kError;
    finding.confidence = 0.9;
    finding.ranks = absent;
    std::vector<int> waiting;
    for (const Wait& other : waits_) {
      if (other.group == wait.group && other.call->number == wait.call->number && other.for_ranks == wait.for_ranks)
        waiting.push_back(other.rank);
    }
    const bool pair = book_.at(*wait.call).is_point_to_point();
    finding.cause = str(rank_list(absent), absent.size() == 1 ? " has" : " have",
                        pair ? " not made the other side of " : " not entered ", told(book_, wait.group, *wait.call),
                        "; ", rank_list(waiting), waiting.size() == 1 ? " waits" : " wait");
    std::string last;
    for (const int rank : absent) {
      constexpr size_t kShown = 3;
      if (finding.evidence.size() >= kShown) break;
      const auto trail = book_.trails.find(rank);
      const LastCall newest = last_call(book_, rank);
      if (newest.call == nullptr) {
        last += no_calls(wait, rank);
        continue;
      }
      const bool done = newest.call->phase == CallPhase::kFinished;
      last += str(" The last call of rank ", rank, ": ", told(book_, newest.group, *newest.call), ", ",
                  done ? "completed" : to_string(newest.call->phase),
                  newest.call->where != 0 ? ", called at " + book_.places[newest.call->where] : std::string{},
                  trail != book_.trails.end() && trail->second.ended ? "; its process then ended in order" : "", ".");
      add_evidence(finding, evidence_of(book_, rank, *newest.call));
    }
    finding.advice =
        str("The next operation is missing there: the rank is in its own code (data loading, evaluation, saving), "
            "skipped the call, "
            "or is stopped or dead.",
            last, " See its log and stack.");
    for (const int rank : waiting) {
      for (const Wait& other : waits_) {
        if (other.rank == rank && other.group == wait.group) {
          add_evidence(finding, evidence_of(book_, rank, *other.call));
          break;
        }
      }
    }
    return finding;
  }

  /// A dump may hold counters only.
  [[nodiscard]] std::string no_calls(const Wait& wait, int rank) const {
    const auto found = group_of(wait).rows.find(rank);
    if (found == group_of(wait).rows.end()) return {};
    const GroupTrail& row = *found->second;
    if (row.last_completed) return str(" Rank ", rank, " has completed call ", *row.last_completed, ".");
    if (row.last_enqueued) return str(" Rank ", rank, " has issued call ", *row.last_enqueued, ".");
    return str(" Rank ", rank, " has made no call at all.");
  }

  /// Everybody who is waited for waits himself: ranks wait for each other in a circle.
  void circle(std::vector<Finding>& findings) const {
    for (const Wait& start : waits_) {
      std::vector<const Wait*> path{&start};
      std::set<int> seen{start.rank};
      while (!path.back()->for_ranks.empty()) {
        const int next = path.back()->for_ranks.front();
        const auto wait = std::find_if(waits_.begin(), waits_.end(),
                                       [next](const Wait& one) { return one.rank == next && !one.for_ranks.empty(); });
        if (wait == waits_.end()) break;
        if (seen.insert(next).second) {
          path.push_back(&*wait);
          continue;
        }
        while (path.front()->rank != next) path.erase(path.begin());
        findings.push_back(circle_of(path));
        return;
      }
    }
  }

  [[nodiscard]] Finding circle_of(const std::vector<const Wait*>& path) const {
    Finding finding;
    finding.code = "calls.deadlock";
    finding.severity = Severity::kError;
    finding.confidence = 0.95;
    std::vector<std::string> parts;
    bool all_send = true;
    for (const Wait* wait : path) {
      parts.push_back(str("rank ", wait->rank, " waits in ", told(book_, wait->group, *wait->call), " for rank ",
                          wait->for_ranks.front()));
      all_send &= book_.at(*wait->call).kind == "send";
      finding.ranks.push_back(wait->rank);
      add_evidence(finding, evidence_of(book_, wait->rank, *wait->call));
    }
    std::sort(finding.ranks.begin(), finding.ranks.end());
    finding.cause = str("ranks wait for each other: ", join(parts, "; "));
    finding.advice =
        all_send ? "Both sides send first. Let the lower rank receive first, or issue send and receive together "
                   "(batch_isend_irecv, or non-blocking calls) and then wait."
                 : "Calls in two groups, or sends and receives, are in a different order on these ranks. Issue them in "
                   "one order "
                   "everywhere, or together without waiting in between.";
    return finding;
  }

  /// All have entered the call, and it does not end: no rank is missing.
  void stalled(std::vector<Finding>& findings) const {
    // Of sends and receives both sides are known to wait only when they do so in a circle.
    const Wait* oldest = nullptr;
    for (const Wait& wait : waits_) {
      if (book_.at(*wait.call).is_point_to_point()) continue;
      if (oldest == nullptr || wait.call->created_ns < oldest->call->created_ns) oldest = &wait;
    }
    if (oldest == nullptr) return;
    const Wait& first = *oldest;
    const GroupRows& group = group_of(first);
    if (!group.no_dump.empty()) return;
    std::vector<int> queued;
    std::vector<int> started;
    std::vector<int> finished;
    for (const auto& [rank, row] : group.rows) {
      const Call* call = row->find(first.call->number);
      if (call == nullptr) continue;
      (call->phase == CallPhase::kFinished ? finished
       : call->phase == CallPhase::kQueued ? queued
                                           : started)
          .push_back(rank);
    }
    Finding finding;
    finding.code = "calls.stalled";
    finding.severity = Severity::kError;
    finding.confidence = 0.8;
    const std::string what = told(book_, first.group, *first.call);
    if (!queued.empty() && !started.empty()) {
      finding.code = "calls.not_started";
      finding.ranks = queued;
      finding.cause =
          str("all ranks have entered ", what, ", but on ", rank_list(queued), " it has not started running; ",
              rank_list(started), " wait", started.size() == 1 ? "s" : "", " inside it");
      finding.advice =
          "No call is missing: what was queued before it on that rank's GPU (or thread) does not end. Look at a kernel "
          "that hangs, a "
          "collective of another group in front of it, or a device error in the kernel log.";
    } else {
      finding.cause =
          str("all ranks have entered ", what, ", and it does not end", finished.empty() ? "" : " on some of them");
      finding.ranks = finished.empty() ? std::vector<int>{} : (queued.empty() ? started : queued);
      finding.advice =
          "This is no missing or wrong call: the transfer itself stalls. Look at the network (NCCL_DEBUG=INFO, "
          "'trireme doctor "
          "--links'), at GPUs with errors (dmesg, Xid), and whether NCCL's kernels wait behind each other on one "
          "device.";
    }
    for (const auto& [rank, row] : group.rows) {
      if (const Call* call = row->find(first.call->number)) add_evidence(finding, evidence_of(book_, rank, *call));
    }
    findings.push_back(std::move(finding));
  }

  void no_dumps(std::vector<Finding>& findings) const {
    std::set<int> silent;
    const Wait* in = nullptr;
    for (const Wait& wait : waits_) {
      for (const int rank : group_of(wait).no_dump) {
        silent.insert(rank);
        if (in == nullptr) in = &wait;
      }
    }
    if (in == nullptr) return;
    const std::vector<int> ranks(silent.begin(), silent.end());
    Finding finding;
    finding.code = "calls.no_dump";
    finding.severity = Severity::kError;
    // Somebody else who is known to be missing is the better explanation.
    finding.confidence = findings.empty() ? 0.75 : 0.4;
    finding.ranks = ranks;
    finding.cause =
        str("no dump from ", rank_list(ranks), ": suspect. The others wait in ", told(book_, in->group, *in->call));
    finding.advice =
        "A rank that fails or is killed often leaves no dump, while those that wait for it do. Look at the end of its "
        "log, at the kernel "
        "log of its host (OOM killer) and at what the launcher says of it.";
    add_evidence(finding, evidence_of(book_, in->rank, *in->call));
    findings.push_back(std::move(finding));
  }

  const TrailBook& book_;
  CompareOptions options_;
  std::vector<GroupRows> groups_;
  std::vector<Wait> waits_;
};

}  // namespace

std::vector<Finding> compare_trails(const TrailBook& book, const CompareOptions& options) {
  if (book.trails.empty()) return {};
  return Comparison(book, options).run();
}

}  // namespace trireme::diagnose
