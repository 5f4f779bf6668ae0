#include "diagnose/job/log_line.h"

#include <utility>

namespace trireme::diagnose {

Finding told_by(const LogLine& line, std::string code, Severity severity, double confidence) {
  Finding finding;
  finding.code = std::move(code);
  finding.severity = severity;
  finding.confidence = confidence;
  if (line.rank) finding.ranks = {*line.rank};
  add_evidence(finding, line.evidence());
  return finding;
}

}  // namespace trireme::diagnose
