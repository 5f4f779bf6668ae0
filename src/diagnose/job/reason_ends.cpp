#include <algorithm>
#include <array>
#include <csignal>

#include "base/str.h"
#include "diagnose/job/log_line.h"
#include "diagnose/job/reason.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

bool failed(const RankEnd& end) { return end.signal != 0 || end.exit_code.value_or(0) != 0; }

bool same_process(const RankEnd& a, const RankEnd& b) {
  if (a.rank && b.rank) return a.rank == b.rank;
  return a.pid != 0 && a.pid == b.pid;
}

std::string who(const RankEnd& end) {
  std::string out = end.rank ? str("rank ", *end.rank) : std::string("a process");
  if (!end.host.empty()) out += " on " + end.host;
  if (end.pid != 0) out += str(" (pid ", end.pid, ")");
  return out;
}

const OomKill* oom_kill_of(const Story& story, const RankEnd& end, size_t num_killed) {
  const OomKill* found = nullptr;
  for (const OomKill& kill : story.oom_kills) {
    if (kill.pid != 0 && kill.pid == end.pid) return &kill;
    const bool names_rank = end.rank && std::find(kill.ranks.begin(), kill.ranks.end(), *end.rank) != kill.ranks.end();
    if (names_rank) return &kill;
    if (!kill.by_batch_system || !kill.ranks.empty()) continue;
    // Slurm says that something in the step was killed: of one rank that ended so it is clear which.
    const bool same_host = !kill.host.empty() && kill.host == end.host;
    if (same_host || num_killed == 1) found = &kill;
  }
  return found;
}

const LastWords* words_of(const Story& story, const RankEnd& end) {
  const LastWords* found = nullptr;
  for (const LastWords& words : story.last_words) {
    if (!words.rank || words.rank != end.rank) continue;
    // The first that is no consequence; "during handling of the above exception" comes after it.
    if (!is_consequence(words.text)) return &words;
    if (found == nullptr) found = &words;
  }
  return found;
}

class Failures {
 public:
  Failures(const Story& story, const std::vector<RankEnd>& ends) : story_(story), ends_(ends) {
    for (const RankEnd& end : ends_) num_killed_ += end.signal == SIGKILL && !end.by_launcher ? 1 : 0;
  }

  std::vector<Finding> run() {
    for (const RankEnd& end : ends_) {
      if (failed(end) && !end.by_launcher) add(finding_of(end));
    }
    for (const LastWords& words : story_.last_words) {
      const bool told = words.rank && std::any_of(ends_.begin(), ends_.end(), [&](const RankEnd& end) {
                          return end.rank == words.rank && failed(end) && !end.by_launcher;
                        });
      if (told || is_consequence(words.text) || is_memory(words.text)) continue;
      Finding finding;
      finding.code = "rank.error";
      finding.severity = Severity::kError;
      finding.confidence = 0.8;
      finding.cause = with_words(words.rank ? str("rank ", *words.rank) : std::string("the program"), words);
      finding.advice = "See the traceback in that log.";
      if (words.rank) finding.ranks = {*words.rank};
      add_evidence(finding, words.evidence);
      add(std::move(finding));
    }
    for (const OomKill& kill : story_.oom_kills) {
      if (std::find(used_.begin(), used_.end(), &kill) != used_.end() || !kill.by_batch_system) continue;
      // slurmstepd says that something of the step was killed, srun which task: once.
      const auto same = std::find_if(findings_.begin(), findings_.end(), [&kill](const Finding& one) {
        return one.code == "host.oom_killed" && kill.ranks.empty() &&
               (kill.host.empty() || one.host.empty() || kill.host == one.host);
      });
      if (same != findings_.end()) {
        add_evidence(*same, kill.evidence);
        continue;
      }
      Finding finding;
      finding.code = "host.oom_killed";
      finding.severity = Severity::kError;
      finding.confidence = 0.9;
      finding.host = kill.host;
      finding.ranks = kill.ranks;
      finding.cause = kill.ranks.empty() ? "Slurm killed a task for its memory"
                                         : str("Slurm killed ", rank_list(kill.ranks), " for its memory");
      finding.advice = kMemoryAdvice;
      add_evidence(finding, kill.evidence);
      add(std::move(finding));
    }
    return std::move(findings_);
  }

 private:
  static constexpr const char* kMemoryAdvice =
      "The host's memory (RAM), not the GPU's, was full, or the job's limit reached. Ask for more (#SBATCH --mem), or "
      "hold less: data-loader workers times "
      "prefetch, a data set loaded by each rank, pinned and offloaded memory, checkpoints gathered on one rank.";

  static bool is_memory(std::string_view words) { return has(words, "out of memory") && has(words, "llocate"); }

  static std::string with_words(const std::string& who, const LastWords& words) {
    return str(who, " failed: ", words.text, words.where.empty() ? "" : str(" (", words.where, ")"));
  }

  Finding finding_of(const RankEnd& end) {
    Finding finding;
    finding.severity = Severity::kError;
    if (end.rank) finding.ranks = {*end.rank};
    add_evidence(finding, end.evidence);
    const LastWords* words = words_of(story_, end);
    const bool waited = end.rank && std::any_of(story_.waiting.begin(), story_.waiting.end(),
                                                [&](const Waiting& one) { return one.rank == *end.rank; });
    const std::string log = end.log.empty() ? "" : str(" See ", end.log, ".");
    if (end.signal == SIGKILL) {
      const OomKill* kill = oom_kill_of(story_, end, num_killed_);
      const bool by_hint = has(end.hint, "out of memory") || has(end.hint, "OOM killer: ");
      if (kill != nullptr || by_hint) {
        finding.code = "host.oom_killed";
        finding.confidence = 0.97;
        finding.cause =
            str(who(end), " was killed ", kill != nullptr && kill->by_batch_system ? "by Slurm" : "by the kernel",
                " because memory ran out");
        finding.advice = kMemoryAdvice;
        if (kill != nullptr) {
          add_evidence(finding, kill->evidence);
          used_.push_back(kill);
        }
        return finding;
      }
      finding.code = "rank.killed";
      finding.confidence = end.first ? 0.85 : 0.75;
      finding.cause = str(who(end), " was killed (SIGKILL)", end.hint.empty() ? "" : ": " + end.hint);
      finding.advice =
          str("Usually the kernel's OOM killer ('dmesg -T | grep -i kill' on that host), a batch system's limit, or "
              "somebody.",
              log);
    } else if (end.signal != 0) {
      finding.code = "rank.crashed";
      finding.confidence = end.first ? 0.92 : 0.8;
      // A watchdog that gives up aborts its process.
      if (end.signal == SIGABRT && (waited || (words != nullptr && is_consequence(words->text))))
        finding.confidence = kConsequence;
      if (end.signal == SIGTERM || end.signal == SIGINT) finding.confidence = 0.5;
      finding.cause = str(who(end), " was ended by ", name_of_signal(end.signal));
      finding.advice =
          str(end.signal == SIGBUS
                  ? "A bus error is often a full /dev/shm (df -h /dev/shm) or a mapped file that was cut short."
              : end.signal == SIGTERM || end.signal == SIGINT
                  ? "Somebody, or a batch system, asked it to end."
                  : "A crash in native code: its core dump or 'catchsegv' shows where; the kernel log "
                    "names the library.",
              log);
      if (words != nullptr && !is_consequence(words->text)) finding.cause += str(": ", words->text);
    } else {
      finding.code = "rank.failed";
      finding.confidence = end.first ? 0.9 : 0.75;
      const int code = end.exit_code.value_or(0);  // an end without a signal has one
      finding.cause = str(who(end), " ended with exit code ", code);
      finding.advice = "Its log has the reason." + log;
      constexpr int kLostPeer = 5;  // Trireme's own code for "another rank died or was late"
      if (code == kLostPeer || (waited && words == nullptr)) finding.confidence = kConsequence;
      if (words != nullptr) {
        finding.cause = with_words(who(end), *words);
        finding.confidence = is_consequence(words->text) ? kConsequence : end.first ? 0.95 : 0.85;
        finding.advice = "See the traceback in that log.";
      }
    }
    if (words != nullptr) add_evidence(finding, words->evidence);
    return finding;
  }

  /// All ranks with the same words are one finding.
  void add(Finding finding) {
    const auto tail = [](const Finding& one) {
      const size_t at = one.cause.find(" failed: ");
      return at == std::string::npos ? std::string{} : one.cause.substr(at);
    };
    const std::string mine = tail(finding);
    for (Finding& known : findings_) {
      if (mine.empty() || tail(known) != mine || known.ranks.empty() || finding.ranks.empty()) continue;
      known.ranks.insert(known.ranks.end(), finding.ranks.begin(), finding.ranks.end());
      std::sort(known.ranks.begin(), known.ranks.end());
      known.ranks.erase(std::unique(known.ranks.begin(), known.ranks.end()), known.ranks.end());
      known.cause = rank_list(known.ranks) + mine;
      known.confidence = std::max(known.confidence, finding.confidence);
      for (Evidence& evidence : finding.evidence) add_evidence(known, std::move(evidence));
      return;
    }
    findings_.push_back(std::move(finding));
  }

  static constexpr double kConsequence = 0.3;

  const Story& story_;
  const std::vector<RankEnd>& ends_;
  size_t num_killed_ = 0;
  std::vector<const OomKill*> used_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<RankEnd> merged_ends(const std::vector<RankEnd>& told) {
  std::vector<RankEnd> out;
  // Those with a rank first, so that a line that only has the process id finds them.
  std::vector<const RankEnd*> order;
  for (const RankEnd& end : told) order.push_back(&end);
  std::stable_sort(order.begin(), order.end(),
                   [](const RankEnd* a, const RankEnd* b) { return a->rank.has_value() > b->rank.has_value(); });
  for (const RankEnd* end : order) {
    const auto known =
        std::find_if(out.begin(), out.end(), [&](const RankEnd& one) { return same_process(one, *end); });
    if (known == out.end()) {
      out.push_back(*end);
      continue;
    }
    if (known->pid == 0) known->pid = end->pid;
    if (known->host.empty()) known->host = end->host;
    // Before the launcher ended the rest, a rank may have failed by itself: then its code is no SIGTERM.
    if (!failed(*known) || (known->by_launcher && !end->by_launcher && end->signal != SIGTERM)) {
      known->signal = end->signal;
      known->exit_code = end->exit_code;
      known->by_launcher = end->by_launcher;
    }
    if (end->by_launcher && known->signal == SIGTERM) known->by_launcher = true;
    known->first |= end->first;
    if (known->hint.empty()) known->hint = end->hint;
    if (known->log.empty()) known->log = end->log;
  }
  return out;
}

bool is_consequence(std::string_view words) {
  constexpr std::array<std::string_view, 22> kMarks = {" died. The group cannot be used",
                                                       "still waiting for rank",
                                                       "has left the group",
                                                       " gave up: ",
                                                       "Watchdog caught collective",
                                                       "Connection closed by peer",
                                                       "Connection reset by peer",
                                                       "Broken pipe",
                                                       "ncclRemoteError",
                                                       "remote process exited or there was a network error",
                                                       "recvValue failed",
                                                       "DistNetworkError",
                                                       "failed to recv, got 0 bytes",
                                                       "SignalException",
                                                       "ChildFailedError",
                                                       "KeyboardInterrupt",
                                                       "while it was reporting an error",
                                                       "See the launcher's report",
                                                       "is gone: ",
                                                       "Some NCCL operations have failed or timed out",
                                                       "socketProgress: Connection closed by remote peer",
                                                       "DistStoreError"};
  return std::any_of(kMarks.begin(), kMarks.end(), [words](std::string_view mark) { return has(words, mark); });
}

std::vector<Finding> failures_of(const Story& story, const std::vector<RankEnd>& ends) {
  return Failures(story, ends).run();
}

}  // namespace trireme::diagnose
