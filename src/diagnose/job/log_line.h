// One line of a job's log with what is known of who wrote it, and the words that lines of interest have in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "diagnose/finding.h"
#include "diagnose/job/story.h"

namespace trireme::diagnose {

struct LogLine {
  std::string_view text;  ///< the whole line
  std::string_view file;
  int64_t number = 0;
  std::optional<int> rank{};  ///< what a launcher put in front, c10d's "[Rank 3]", or the log file of one rank

  [[nodiscard]] Evidence evidence() const { return {std::string(file), number, std::string(text.substr(0, 600))}; }
};

/// The beginning of what a line says: about its rank, with the line as evidence. Cause and advice are the caller's.
[[nodiscard]] Finding told_by(const LogLine& line, std::string code, Severity severity, double confidence);

/// What a part of the job log reader knows: words to look for, and what to do with a line that has one.
struct LogRule {
  std::string_view word;
  void (*take)(const LogLine& line, Story& story);
};

/// The rank in c10d's own prefix: "[Rank 1]", "[PG ID 0 PG GUID 0(default_pg) Rank 1]", "[rank1]:".
[[nodiscard]] std::optional<int> c10d_rank(std::string_view text);

/// The ranks of "rank 3", "ranks 0, 1, 2", "s 0, 1 and 2": until something else comes.
[[nodiscard]] std::vector<int> ranks_in(std::string_view text);

/// 9 of "SIGKILL", "KILL"; 0 for no signal. And back: "SIGKILL", "signal 61".
[[nodiscard]] int signal_of(std::string_view name);
[[nodiscard]] std::string name_of_signal(int signal);

/// Rules, by who writes such lines.
[[nodiscard]] std::vector<LogRule> c10d_rules();
[[nodiscard]] std::vector<LogRule> own_rules();
[[nodiscard]] std::vector<LogRule> watch_rules();
[[nodiscard]] std::vector<LogRule> launcher_rules();
[[nodiscard]] std::vector<LogRule> slurm_rules();
[[nodiscard]] std::vector<LogRule> memory_rules();
[[nodiscard]] std::vector<LogRule> nccl_rules();
[[nodiscard]] std::vector<LogRule> known_error_rules();

}  // namespace trireme::diagnose
