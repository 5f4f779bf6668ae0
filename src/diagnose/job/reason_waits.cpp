#include <algorithm>
#include <map>
#include <set>

#include "base/str.h"
#include "diagnose/job/reason.h"

namespace trireme::diagnose {
namespace {

bool is_world(const std::string& group) {
  return group.empty() || group == "0" || group == "default_pg" || group == "world";
}

/// Operations of which all ranks must pass the same size.
bool same_sizes(const std::string& op) {
  return op == "all_reduce" || op == "broadcast" || op == "reduce" || op == "reduce_scatter";
}

class Waits {
 public:
  Waits(const Story& story, const CompareOptions& options) : story_(story), options_(options) {}

  std::vector<Finding> run() {
    clashes();
    absences();
    watchdogs();
    return std::move(findings_);
  }

 private:
  [[nodiscard]] std::optional<int> world() const {
    return options_.world_size ? options_.world_size : story_.world_size;
  }

  /// The calls that a checking library saw, by rank: who is in the minority is wrong.
  void clashes() {
    if (story_.clashes.empty()) return;
    const CallClash& first = story_.clashes.front();
    std::map<std::string, std::set<int>> by_call;
    Finding finding;
    for (const CallClash& clash : story_.clashes) {
      if (clash.where != first.where) continue;
      by_call[clash.first_call].insert(clash.first_rank);
      by_call[clash.second_call].insert(clash.second_rank);
      add_evidence(finding, clash.evidence);
    }
    finding.code = "calls.mismatch";
    finding.severity = Severity::kError;
    size_t most = 0;
    for (const auto& [call, ranks] : by_call) most = std::max(most, ranks.size());
    const auto majority =
        std::count_if(by_call.begin(), by_call.end(), [most](const auto& one) { return one.second.size() == most; });
    std::set<int> odd;
    for (const auto& [call, ranks] : by_call) {
      if (majority > 1 || ranks.size() < most) odd.insert(ranks.begin(), ranks.end());
    }
    finding.ranks.assign(odd.begin(), odd.end());
    finding.confidence = majority > 1 ? 0.9 : 0.95;
    finding.cause =
        str(first.where.empty() ? "" : first.where + ": ", "rank ", first.first_rank, " called ", first.first_call,
            ", rank ", first.second_rank, " called ", first.second_call, "; ", first.difference);
    finding.advice =
        "All ranks must make the same calls in the same order, with the same shapes and dtypes. Look for a branch on "
        "the rank or on its data before that call.";
    findings_.push_back(std::move(finding));
  }

  void absences() {
    std::map<std::vector<int>, Finding> by_ranks;
    for (const Absence& absence : story_.absent) {
      std::vector<int> ranks = absence.ranks;
      std::sort(ranks.begin(), ranks.end());
      Finding& finding = by_ranks[ranks];
      if (finding.code.empty()) {
        finding.code = "calls.not_entered";
        finding.severity = Severity::kError;
        finding.confidence = absence.confidence;
        finding.ranks = ranks;
        finding.cause = str(rank_list(ranks), " did not come to ", absence.what);
        finding.advice =
            "The others waited for it. See its log and stack: it is in its own code, skipped the call, or is stopped "
            "or dead.";
      }
      add_evidence(finding, absence.evidence);
    }
    for (auto& [ranks, finding] : by_ranks) findings_.push_back(std::move(finding));
  }

  void watchdogs() {
    std::map<std::pair<std::string, int64_t>, std::vector<const Waiting*>> by_call;
    const std::vector<Waiting> all = with_groups();
    for (const Waiting& waiting : all) by_call[{waiting.group, waiting.call}].push_back(&waiting);
    for (auto& [call, waiting] : by_call) {
      std::sort(waiting.begin(), waiting.end(), [](const Waiting* a, const Waiting* b) { return a->rank < b->rank; });
      if (!unlike(waiting)) one_call(waiting);
      constexpr size_t kMostCalls = 5;
      if (findings_.size() > kMostCalls) return;
    }
  }

  /// The line that says in which call a rank timed out does not say of which group; the one on its progress does. It counts where it tells calls of
  /// one number apart: not every rank prints it.
  [[nodiscard]] std::vector<Waiting> with_groups() const {
    std::vector<Waiting> all = story_.waiting;
    std::map<int64_t, std::set<std::string>> groups_of_call;
    for (Waiting& waiting : all) {
      if (!waiting.group.empty()) continue;
      std::set<std::string> groups;
      for (const Progress& one : story_.progress) {
        const bool in_it = one.rank == waiting.rank && one.timed_out && one.enqueued && *one.enqueued >= waiting.call &&
                           one.completed.value_or(-1) < waiting.call;
        if (in_it) groups.insert(one.group);
      }
      if (groups.size() != 1) continue;
      waiting.group = *groups.begin();
      groups_of_call[waiting.call].insert(waiting.group);
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (groups_of_call[all[i].call].size() < 2) all[i].group = story_.waiting[i].group;
    }
    return all;
  }

  static void add_lines(Finding& finding, const std::vector<const Waiting*>& waiting) {
    for (const Waiting* one : waiting) add_evidence(finding, one->evidence);
  }

  static std::string told(const Waiting& one) {
    return str(one.op, one.size.empty() ? "" : " of " + one.size, ", call ", one.call,
               one.group.empty() ? "" : str(" of group '", one.group, "'"));
  }

  /// Ranks that wait in the same number with another operation or size.
  bool unlike(const std::vector<const Waiting*>& waiting) {
    std::map<std::string, std::vector<int>> by_kind;
    for (const Waiting* one : waiting)
      by_kind[same_sizes(one->op) ? one->op + " " + one->size : one->op].push_back(one->rank);
    if (by_kind.size() < 2) return false;
    Finding finding;
    finding.code = "calls.mismatch";
    finding.severity = Severity::kError;
    finding.confidence = 0.93;
    size_t most = 0;
    std::vector<std::string> parts;
    for (const auto& [kind, ranks] : by_kind) {
      most = std::max(most, ranks.size());
      parts.push_back(str(rank_list(ranks), ranks.size() == 1 ? " waits in " : " wait in ", kind));
    }
    const auto majority =
        std::count_if(by_kind.begin(), by_kind.end(), [most](const auto& one) { return one.second.size() == most; });
    for (const auto& [kind, ranks] : by_kind) {
      if (majority > 1 || ranks.size() < most) finding.ranks.insert(finding.ranks.end(), ranks.begin(), ranks.end());
    }
    std::sort(finding.ranks.begin(), finding.ranks.end());
    finding.cause = str("call ", waiting.front()->call, " is not the same on all ranks: ", join(parts, "; "));
    finding.advice =
        "All ranks must make the same calls in the same order, with the same shapes. Look for a branch on the rank or "
        "on its data before that call.";
    add_lines(finding, waiting);
    findings_.push_back(std::move(finding));
    return true;
  }

  void one_call(const std::vector<const Waiting*>& waiting) {
    const Waiting& first = *waiting.front();
    std::vector<int> ranks;
    for (const Waiting* one : waiting) ranks.push_back(one->rank);
    const std::string wait = str(rank_list(ranks), ranks.size() == 1 ? " waits in " : " wait in ", told(first));
    Finding finding;
    finding.code = "calls.timeout";
    finding.severity = Severity::kError;
    finding.advice =
        "See its log and stack (py-spy dump): it is in its own code, skipped the call, or is dead. A flight recorder "
        "tells more: "
        "TORCH_FR_BUFFER_SIZE=2000 (before 2.9: TORCH_NCCL_TRACE_BUFFER_SIZE), and give its dumps to 'trireme "
        "diagnose'.";
    // Those that answered the call for a dump and had not come so far.
    std::set<int> suspects;
    for (const Progress& one : story_.progress) {
      if (one.group != first.group && !(is_world(one.group) && is_world(first.group))) continue;
      if (one.enqueued && *one.enqueued < first.call &&
          std::find(ranks.begin(), ranks.end(), one.rank) == ranks.end()) {
        suspects.insert(one.rank);
        add_evidence(finding, one.evidence);
      }
    }
    if (!suspects.empty()) {
      finding.confidence = 0.85;
      finding.ranks.assign(suspects.begin(), suspects.end());
      finding.cause =
          str(wait, "; ", rank_list(finding.ranks), suspects.size() == 1 ? " has" : " have", " not issued it");
    } else if (const int num_ranks = is_world(first.group) ? world().value_or(0) : 0; num_ranks > 0) {
      for (int rank = 0; rank < num_ranks; ++rank) {
        if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) suspects.insert(rank);
      }
      finding.ranks.assign(suspects.begin(), suspects.end());
      if (suspects.empty()) {
        finding.code = "calls.stalled";
        finding.confidence = 0.7;
        finding.cause =
            str("all ", num_ranks, " ranks wait in ", told(first), ": no rank is missing, the transfer itself stalls");
        finding.advice =
            "Look at the network (NCCL_DEBUG=INFO), at GPUs with errors (dmesg, Xid), and at calls that differ in what "
            "the log does not show: "
            "TORCH_DISTRIBUTED_DEBUG=DETAIL compares them.";
      } else {
        finding.confidence = suspects.size() == 1 ? 0.85 : 0.7;
        finding.cause = str(wait, "; ", rank_list(finding.ranks), suspects.size() == 1 ? " is" : " are",
                            " not among them: suspect");
      }
    } else {
      finding.confidence = 0.6;
      finding.cause = str(wait, "; the culprit is not among them");
      finding.advice += " How many ranks there are is not told: --world-size N names those that are missing.";
    }
    add_lines(finding, waiting);
    findings_.push_back(std::move(finding));
  }

  const Story& story_;
  const CompareOptions& options_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> waits_of(const Story& story, const CompareOptions& options) { return Waits(story, options).run(); }

}  // namespace trireme::diagnose
