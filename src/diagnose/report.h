// What a command has found out: findings, rows of its table, facts, and how each file was understood.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "diagnose/facts.h"
#include "diagnose/finding.h"

namespace trireme::diagnose {

/// How a file was understood.
struct FileNote {
  std::string file{};
  std::vector<std::string> kinds{};  ///< "NCCL log", "kernel log"; empty: nothing in it that a reader knows
  std::string note{};                ///< why it could not be read, or only in part; empty when all is well
};

struct Report {
  std::vector<Finding> findings{};
  std::vector<Check> checks{};
  Facts facts{};
  std::vector<FileNote> files{};
  std::vector<std::string> hosts{};  ///< of --hostfile: those that answered

  /// Errors before warnings before infos, each most probable first; equals keep their order.
  void sort();
  [[nodiscard]] bool has_errors() const;
};

/// {"schema": 1, "findings": [...], "facts": {...}, "checks": [...], "files": [...], "hosts": [...]} as docs/formats.md shows it. Bytes that
/// are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_json(const Report& report);

/// Reads what to_json wrote, on whatever host. Keys that are missing or of another type are left at their default.
///
/// Errors   kIo: not JSON, or no object with "schema": 1.
[[nodiscard]] Report report_from_json(std::string_view text);

struct TextOptions {
  bool table = true;      ///< the rows of the checks first
  std::string nothing{};  ///< what is said when there are no findings; empty: nothing
  size_t width = 100;     ///< columns; text is wrapped between words
  bool colour = false;
};

/// For people: the table (state, check, what was found), then each finding with what it means, what to do, and the lines that show it.
[[nodiscard]] std::string to_text(const Report& report, const TextOptions& options);

}  // namespace trireme::diagnose
