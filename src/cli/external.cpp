#include "cli/external.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace trireme::cli {
namespace {

constexpr std::array kExternal = {
    ExternalCommand{"train", "train a built-in model"},
    ExternalCommand{"bench", "measure collectives, overlap, optimizers, whole steps"},
    ExternalCommand{"trace", "where the time of a job goes; join the traces of its ranks"},
};

}  // namespace

std::span<const ExternalCommand> external_commands() { return kExternal; }

std::string own_folder() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (size <= 0) return ".";
  const std::string_view text(path.data(), static_cast<size_t>(size));
  return std::string(text.substr(0, text.rfind('/')));
}

std::string find_external(const std::string& name) {
  const std::string program = "trireme-" + name;
  std::string beside = own_folder() + "/" + program;
  if (access(beside.c_str(), X_OK) == 0) return beside;
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    std::string candidate = std::string(rest.substr(0, colon)) + "/" + program;
    if (colon != 0 && access(candidate.c_str(), X_OK) == 0) return candidate;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return {};
}

void exec_external(const std::string& name, char** args) {
  const std::string program = find_external(name);
  if (program.empty()) return;
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (char** arg = args; *arg != nullptr; ++arg) argv.push_back(*arg);
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
}

}  // namespace trireme::cli
