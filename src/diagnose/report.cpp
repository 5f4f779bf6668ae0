#include "diagnose/report.h"

#include <algorithm>

namespace trireme::diagnose {

void Report::sort() {
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return a.severity != b.severity ? a.severity > b.severity : a.confidence > b.confidence;
  });
}

bool Report::has_errors() const {
  const auto bad = [](const Finding& finding) { return finding.severity == Severity::kError; };
  const auto failed = [](const Check& check) { return check.state == Check::State::kError; };
  return std::any_of(findings.begin(), findings.end(), bad) || std::any_of(checks.begin(), checks.end(), failed);
}

}  // namespace trireme::diagnose
