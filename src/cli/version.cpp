// `trireme --version`. Torch and backends are asked from trireme-train, since this binary does not know LibTorch:
// `trireme-train --version-json` prints
//   {"torch_built": "2.13.0", "torch_loaded": "2.13.0+cpu", "backends": [{"name": "host", "ok": true, "reason": ""}]}
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/str.h"
#include "cli/build_info.h"
#include "cli/commands.h"
#include "cli/external.h"

namespace trireme::cli {
namespace {

struct ClosePipe {
  void operator()(FILE* pipe) const { pclose(pipe); }
};

std::string output_of(const std::string& command) {
  std::string text;
  const std::unique_ptr<FILE, ClosePipe> pipe(popen(command.c_str(), "r"));
  if (!pipe) return text;
  char buffer[4096];
  size_t got = 0;
  while (text.size() < 1'000'000 && (got = fread(buffer, 1, sizeof(buffer), pipe.get())) > 0) text.append(buffer, got);
  return text;
}

std::string torch_and_backends() {
  const std::string program = find_external("train");
  if (program.empty()) {
    return str("torch     none: trireme-train is neither in ", own_folder(), " nor in PATH\nbackends  unknown\n");
  }
  std::string quoted = "'";
  for (const char c : program) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const auto info = nlohmann::json::parse(output_of(quoted + "' --version-json 2>/dev/null"), nullptr, false);
  if (!info.is_object()) return str("torch     unknown: ", program, " --version-json gave no answer\n");
  std::string text =
      str("torch     built with ", info.value("torch_built", "?"), ", loaded ", info.value("torch_loaded", "?"), "\n");
  const char* label = "backends  ";
  for (const auto& backend : info.value("backends", nlohmann::json::array())) {
    if (!backend.is_object()) continue;
    const bool ok = backend.value("ok", false);
    text += str(label, backend.value("name", "?"), ok ? ": available" : ": not available, ",
                ok ? "" : backend.value("reason", "?"), "\n");
    label = "          ";
  }
  return text;
}

}  // namespace

int print_version() {
  std::fputs(str("trireme   ", kVersion, "\ncommit    ", kCommit, "\ncompiler  ", kCompiler, "\n", torch_and_backends())
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace trireme::cli
