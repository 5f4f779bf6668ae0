// Runs a program of the system for what it prints, with a time limit.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trireme::doctor {

struct ToolOutput {
  bool missing = false;    ///< no such program in PATH
  bool timed_out = false;  ///< it did not end in time and was killed, with what it had started
  int exit_code = 0;       ///< 128 + signal when it was killed
  std::string out;         ///< at most 16 MiB
  std::string err;
  std::chrono::system_clock::time_point first_byte{};  ///< when its first output came

  [[nodiscard]] bool ok() const { return !missing && !timed_out && exit_code == 0; }
  /// The first line of what it said, on whichever stream; cut to 200 bytes.
  [[nodiscard]] std::string first_line() const;
};

/// Standard input is empty. `command[0]` without "/" is looked for in PATH. [blocking]
[[nodiscard]] ToolOutput run_tool(const std::vector<std::string>& command, std::chrono::milliseconds limit);

/// Its path in PATH; empty when there is none.
[[nodiscard]] std::string find_in_path(const std::string& program);

}  // namespace trireme::doctor
