#include "diagnose/finding.h"

#include <algorithm>

namespace trireme::diagnose {

const char* to_string(Severity severity) noexcept {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "?";
}

const char* to_string(Check::State state) noexcept {
  switch (state) {
    case Check::State::kOk:
      return "ok";
    case Check::State::kWarning:
      return "warning";
    case Check::State::kError:
      return "error";
    case Check::State::kUnknown:
      return "unknown";
  }
  return "?";
}

void add_evidence(Finding& finding, Evidence evidence) {
  constexpr size_t kLongest = 400;
  if (finding.evidence.size() >= kMaxEvidence) return;
  const bool there = std::any_of(finding.evidence.begin(), finding.evidence.end(), [&evidence](const Evidence& one) {
    return one.line > 0 && one.line == evidence.line && one.file == evidence.file;
  });
  if (there) return;
  if (evidence.text.size() > kLongest) evidence.text.resize(kLongest);
  finding.evidence.push_back(std::move(evidence));
}

}  // namespace trireme::diagnose
