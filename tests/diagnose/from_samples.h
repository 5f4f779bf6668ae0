// Reads a sample file, or text of a test, as `trireme doctor --from` does.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "diagnose/reader.h"

namespace trireme::diagnose {

/// Reports collected by others, which not every copy of the source has beside it. Empty when they are not there.
inline std::string samples_folder() {
  const std::filesystem::path folder = std::filesystem::path(TRIREME_SOURCE_DIR) / "../shared/cases/samples";
  for (const auto& candidate : {folder, std::filesystem::path(TRIREME_SOURCE_DIR) / "../../shared/cases/samples"}) {
    if (std::filesystem::is_directory(candidate)) return candidate.string();
  }
  return {};
}

inline Report read_all(const std::vector<std::string>& files) {
  Readers readers = all_readers();
  Report report;
  read_files(files, readers, report);
  finish(readers, report);
  return report;
}

inline Report report_of(std::string_view text) {
  Readers readers = all_readers();
  Report report;
  read_text(text, "text", readers, report);
  finish(readers, report);
  return report;
}

/// Codes of the findings, joined by blanks, in their order.
inline std::string codes(const Report& report) {
  std::string text;
  for (const Finding& finding : report.findings) text += (text.empty() ? "" : " ") + finding.code;
  return text;
}

inline const Finding* find(const Report& report, std::string_view code, std::string_view host = {}) {
  const auto found = std::find_if(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
    return finding.code == code && (host.empty() || finding.host == host);
  });
  return found == report.findings.end() ? nullptr : &*found;
}

}  // namespace trireme::diagnose

#define TRIREME_NEEDS_SAMPLES(folder)          \
  const std::string folder = samples_folder(); \
  if (folder.empty()) GTEST_SKIP() << "the collected samples (../shared/cases/samples) are not beside this source"
