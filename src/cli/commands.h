// The commands of the `trireme` binary. Each is a function of its own arguments (without "trireme" and its own name)
// that returns the exit code (docs/errors.md); a trireme::Error may leave it and is reported by main().
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme::cli {

struct Command {
  const char* name;
  const char* summary;
  int (*main)(const std::vector<std::string>& args);
};

int cmd_run(const std::vector<std::string>& args);
int cmd_simulate(const std::vector<std::string>& args);
int cmd_plan(const std::vector<std::string>& args);
int cmd_doctor(const std::vector<std::string>& args);
int cmd_diagnose(const std::vector<std::string>& args);
int cmd_completion(const std::vector<std::string>& args);

/// `trireme --version`: commit, compiler, torch, backends.
int print_version();

}  // namespace trireme::cli
