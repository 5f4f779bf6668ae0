#include "cli/called_as.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "cli/shell_word.h"
#include "launch/failure_report.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

/// What a shell would run for this name; empty when there is nothing.
fs::path found_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const fs::path candidate = fs::path(rest.substr(0, colon)) / name;
    if (colon != 0 && access(candidate.c_str(), X_OK) == 0) return candidate;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return {};
}

/// A relative path that has no '/' would be looked for in PATH.
std::string runnable(const fs::path& program) {
  const std::string path = launch::short_path(program.string());
  return shell_word(path.find('/') == std::string::npos ? "./" + path : path);
}

}  // namespace

std::string called_as(const std::string& command) {
  if (const char* told = std::getenv("TRIREME_CALLED_AS"); told != nullptr && *told != '\0') {
    return std::string(told) + " " + command;
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return "trireme " + command;
  fs::path program = self.parent_path() / "trireme";
  std::string rest = " " + command;
  if (access(program.c_str(), X_OK) != 0) {
    program = self;
    rest.clear();
  }
  const std::string name = program.filename().string();
  const fs::path found = found_in_path(name);
  if (!found.empty() && fs::equivalent(found, program, error) && !error) return name + rest;
  return runnable(program) + rest;
}

}  // namespace trireme::cli
