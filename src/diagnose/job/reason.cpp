#include "diagnose/job/reason.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/str.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

constexpr double kConsequence = 0.3;  // at or below: told only when nothing else explains

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&b](int rank) { return std::find(b.begin(), b.end(), rank) != b.end(); });
}

bool is_about_calls(const Finding& finding) { return finding.code.starts_with("calls."); }

void take_evidence(Finding& into, const Finding& from) {
  for (const Evidence& evidence : from.evidence) add_evidence(into, evidence);
}

/// Findings that a rank was not there, as against one that did something wrong.
bool is_absence(const Finding& finding) {
  return finding.code == "calls.not_entered" || finding.code == "calls.no_dump" || finding.code == "calls.timeout" ||
         finding.code == "calls.stalled";
}

/// Failures of a rank or its host: they explain why others waited.
bool explains(const Finding& finding) {
  if (finding.severity != Severity::kError || finding.confidence <= kConsequence) return false;
  constexpr std::array<std::string_view, 11> kKinds = {"rank.",
                                                       "host.",
                                                       "memory.",
                                                       "data.",
                                                       "slurm.",
                                                       "cuda.",
                                                       "mpi.",
                                                       "program.",
                                                       "values.",
                                                       "nccl.duplicate_gpu",
                                                       "ddp.unused_parameters"};
  return std::any_of(kKinds.begin(), kKinds.end(),
                     [&](std::string_view kind) { return finding.code.starts_with(kind); }) ||
         (finding.code.starts_with("nccl.") && finding.confidence >= 0.8);
}

/// What an error's own text says of it, and that a rank failed with that text: one finding, of the rank and with the advice for that error.
void join_known(std::vector<Finding>& failures, std::vector<Finding>& told) {
  const auto share_a_line = [](const Finding& a, const Finding& b) {
    return std::any_of(a.evidence.begin(), a.evidence.end(), [&b](const Evidence& one) {
      return std::any_of(b.evidence.begin(), b.evidence.end(), [&one](const Evidence& other) {
        return one.line > 0 && one.line == other.line && one.file == other.file;
      });
    });
  };
  std::erase_if(told, [&](const Finding& known) {
    bool joined = false;
    for (Finding& failure : failures) {
      const bool about_a_rank =
          failure.code == "rank.failed" || failure.code == "rank.error" || failure.code == "rank.crashed";
      if (!about_a_rank || !share_a_line(failure, known)) continue;
      joined = true;
      failure.advice = known.advice;
      if (failure.confidence <= kConsequence && known.confidence < 0.7) continue;
      failure.code = known.code;
      failure.confidence = std::max(failure.confidence, known.confidence);
      take_evidence(failure, known);
    }
    return joined;
  });
}

/// "NCCL error in: ..." of a rank is the echo of a warning that says more.
void drop_echoes(std::vector<Finding>& failures, std::vector<Finding>& told) {
  const auto cause = std::find_if(told.begin(), told.end(), [](const Finding& one) {
    return one.confidence >= 0.7 && (one.code.starts_with("nccl.") || one.code.starts_with("cuda."));
  });
  if (cause == told.end()) return;
  std::erase_if(failures, [&cause](const Finding& failure) {
    const bool echo = failure.cause.find("NCCL error in") != std::string::npos;
    if (echo) take_evidence(*cause, failure);
    return echo;
  });
}

/// A rank that ran out of device memory both prints that and fails: one finding.
void join_memory(std::vector<Finding>& failures, std::vector<Finding>& told) {
  for (Finding& memory : told) {
    if (!memory.code.starts_with("memory.") || memory.severity != Severity::kError) continue;
    std::erase_if(failures, [&](const Finding& failure) {
      const bool same = overlap(failure.ranks, memory.ranks) && failure.code != "host.oom_killed" &&
                        failure.cause.find("emory") != std::string::npos;
      if (same) take_evidence(memory, failure);
      if (same) memory.confidence = std::max(memory.confidence, failure.confidence);
      return same;
    });
  }
}

/// What the launcher said while the job ran, and what the files show now: one finding for each rank that is stopped or slow.
void join_watched(std::vector<Finding>& causes, std::vector<Finding>& told) {
  std::erase_if(told, [&](const Finding& one) {
    if (one.code != "rank.slow" && one.code != "rank.stopped") return false;
    const auto known = std::find_if(causes.begin(), causes.end(), [&](const Finding& cause) {
      return cause.code == one.code && cause.ranks == one.ranks;
    });
    if (known == causes.end()) return false;
    take_evidence(*known, one);
    return true;
  });
}

/// The launcher has compared the calls when the first rank failed, with all of them still there. Of what the traces show now, the same is its
/// evidence, and a guess is dropped for it.
void join_explanations(std::vector<Finding>& told, std::vector<Finding>& waits) {
  const auto explains_calls = [](const Finding& one) {
    return is_about_calls(one) && !one.evidence.empty() && has(one.evidence.front().text, "[launch] Why: ");
  };
  std::vector<Finding> explanations;
  std::copy_if(told.begin(), told.end(), std::back_inserter(explanations), explains_calls);
  std::erase_if(told, explains_calls);
  for (Finding& explanation : explanations) {
    std::erase_if(waits, [&](const Finding& wait) {
      const bool same = wait.ranks == explanation.ranks;
      const bool weaker = is_about_calls(wait) && wait.confidence < explanation.confidence;
      if (!same && !weaker) return false;
      take_evidence(explanation, wait);
      if (same && !is_absence(wait)) explanation.code = wait.code;
      return true;
    });
    waits.push_back(std::move(explanation));
  }
}

/// Who waited for a rank that is known to have failed is a consequence of it: its evidence goes there.
void explain_waits(std::vector<Finding>& causes, std::vector<Finding>& waits) {
  std::erase_if(waits, [&](Finding& wait) {
    if (!is_absence(wait)) return false;
    for (Finding& cause : causes) {
      if (!explains(cause) || cause.ranks.empty() || wait.ranks.empty() || !overlap(cause.ranks, wait.ranks)) continue;
      const bool all =
          std::all_of(wait.ranks.begin(), wait.ranks.end(), [&](int rank) { return overlap({rank}, cause.ranks); });
      if (!all) continue;
      const size_t tail = wait.cause.find("; rank");
      if (wait.code == "calls.not_entered" && tail != std::string::npos &&
          cause.cause.find(" for it") == std::string::npos) {
        cause.cause += "; others then waited for it";
      }
      take_evidence(cause, wait);
      return true;
    }
    return false;
  });
  // The cause is known, though not whose: what is left of the waiting is less sure.
  const bool explained = std::any_of(causes.begin(), causes.end(),
                                     [](const Finding& cause) { return explains(cause) && cause.confidence >= 0.7; });
  if (!explained) return;
  for (Finding& wait : waits) {
    if (is_absence(wait)) wait.confidence = std::min(wait.confidence, 0.5);
    if (is_absence(wait)) wait.severity = Severity::kWarning;
  }
}

void live_findings(const Story& story, std::vector<Finding>& causes) {
  for (const auto& [rank, evidence] : story.stopped) {
    Finding finding;
    finding.code = "rank.stopped";
    finding.severity = Severity::kError;
    finding.confidence = 0.97;
    finding.ranks = {rank};
    finding.cause = str("rank ", rank, " is stopped (SIGSTOP, or a debugger)");
    finding.advice = str("Let it go on: kill -CONT ", evidence.text.substr(evidence.text.rfind(' ') + 1));
    add_evidence(finding, evidence);
    causes.push_back(std::move(finding));
  }
  for (const auto& [rank, evidence] : story.gone) {
    Finding finding;
    finding.code = "rank.gone";
    finding.severity = Severity::kError;
    finding.confidence = 0.9;
    finding.ranks = {rank};
    finding.cause = str("rank ", rank, " has no process any more");
    finding.advice = "See its log and the launcher's report.";
    add_evidence(finding, evidence);
    causes.push_back(std::move(finding));
  }
}

}  // namespace

void reason(Story& story, const CompareOptions& given, Report& report) {
  CompareOptions options = given;
  if (!options.world_size) options.world_size = story.world_size;
  const std::vector<RankEnd> ends = merged_ends(story.ends);
  std::vector<Finding> causes = failures_of(story, ends);
  join_memory(causes, story.findings);
  join_known(causes, story.findings);
  drop_echoes(causes, story.findings);
  live_findings(story, causes);
  for (Finding& finding : slow_ranks_of(story)) causes.push_back(std::move(finding));
  std::vector<Finding> hangs = hangs_of(story);
  join_watched(causes, hangs);
  join_watched(causes, story.findings);
  for (Finding& finding : hangs) causes.push_back(std::move(finding));

  // Recorded calls say more than the texts of a log about the same calls.
  std::vector<Finding> waits = compare_trails(story.trails, options);
  std::vector<Finding> texts = waits_of(story, options);
  if (!waits.empty()) {
    std::erase_if(texts, [&](const Finding& text) {
      take_evidence(waits.front(), text);
      return true;
    });
  }
  const bool clash =
      std::any_of(texts.begin(), texts.end(), [](const Finding& text) { return text.code == "calls.mismatch"; });
  if (clash) std::erase_if(texts, [](const Finding& text) { return is_absence(text); });
  for (Finding& text : texts) waits.push_back(std::move(text));
  join_explanations(story.findings, waits);
  for (Finding& finding : story.findings) causes.push_back(std::move(finding));
  story.findings.clear();
  explain_waits(causes, waits);

  const bool has_cause =
      std::any_of(causes.begin(), causes.end(), explains) ||
      std::any_of(waits.begin(), waits.end(), [](const Finding& wait) { return wait.severity == Severity::kError; });
  for (Finding& cause : causes) {
    // Told only when nothing else is: who ended with "I lost another rank", a connection that closed.
    if (has_cause && cause.confidence <= kConsequence) continue;
    if (has_cause && cause.code.ends_with(".peer_gone")) continue;
    if (cause.confidence <= kConsequence) cause.confidence = 0.5;
    report.findings.push_back(std::move(cause));
  }
  // A clash of calls makes every rank fail; those errors repeat it.
  const bool desync = std::any_of(waits.begin(), waits.end(),
                                  [](const Finding& wait) { return is_about_calls(wait) && !is_absence(wait); });
  if (desync) {
    std::erase_if(report.findings, [](const Finding& finding) {
      return (finding.code == "rank.failed" || finding.code == "rank.error") &&
             (finding.cause.find("called") != std::string::npos ||
              finding.cause.find("mismatch between collectives") != std::string::npos);
    });
  }
  for (Finding& wait : waits) report.findings.push_back(std::move(wait));
  for (MemoryAsk& ask : story.memory) report.facts.memory.push_back(std::move(ask));
  for (const std::string& file : story.trails.duplicates) {
    report.files.push_back({file, {}, "another dump of the same rank was read before; this one is left out"});
  }
  report.sort();
}

}  // namespace trireme::diagnose
