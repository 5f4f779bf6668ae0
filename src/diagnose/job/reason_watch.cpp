#include <algorithm>

#include "base/str.h"
#include "diagnose/job/reason.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

Finding finding_of(const ToldHang& hang, const ToldHang::Culprit& culprit) {
  const bool stopped = has(culprit.doing, "is stopped (SIGSTOP)");
  Finding finding;
  finding.code = stopped ? "rank.stopped" : "rank.hangs";
  finding.severity = hang.over ? Severity::kWarning : Severity::kError;
  finding.confidence = hang.over ? 0.5 : 0.96;
  finding.ranks = {culprit.rank};
  const std::string others =
      hang.waiting.empty()
          ? std::string("all others have ended")
          : str(rank_list(hang.waiting), hang.waiting.size() == 1 ? " waits" : " wait", " for it in ", hang.where);
  finding.cause =
      str("rank ", culprit.rank, " ", culprit.doing, ", while ", others, hang.over ? "; later it went on" : "");
  finding.advice = stopped ? str("Let it go on: kill -CONT ", culprit.pid)
                           : str("The launcher looked at it while the others waited: what its main thread did stands "
                                 "there, innermost function first; the stacks of all its threads are in reports/rank",
                                 culprit.rank, ".txt of the run folder.");
  add_evidence(finding, hang.evidence);
  return finding;
}

Finding circle_of(const ToldHang& hang) {
  Finding finding;
  finding.code = "calls.deadlock";
  finding.severity = hang.over ? Severity::kWarning : Severity::kError;
  finding.confidence = hang.over ? 0.5 : 0.95;
  finding.ranks = hang.circle;
  finding.cause = str(rank_list(hang.circle), " wait for each other in ", hang.where);
  finding.advice =
      "Calls in two groups, or sends and receives, are in a different order on these ranks. Issue them in one order "
      "everywhere.";
  add_evidence(finding, hang.evidence);
  return finding;
}

}  // namespace

std::vector<Finding> hangs_of(const Story& story) {
  std::vector<Finding> findings;
  // Each rank's log tells the same; a culprit is told of its last hang.
  const auto add = [&](Finding finding) {
    for (Finding& known : findings) {
      if (known.ranks != finding.ranks) continue;
      if (known.cause != finding.cause && finding.confidence >= known.confidence) {
        known = std::move(finding);
      } else if (known.cause == finding.cause) {
        for (Evidence& evidence : finding.evidence) add_evidence(known, std::move(evidence));
      }
      return;
    }
    findings.push_back(std::move(finding));
  };
  for (const ToldHang& hang : story.hangs) {
    if (!hang.circle.empty()) add(circle_of(hang));
    for (const ToldHang::Culprit& culprit : hang.culprits) add(finding_of(hang, culprit));
  }
  return findings;
}

}  // namespace trireme::diagnose
