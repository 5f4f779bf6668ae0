// `trireme plan`: its parts by name. Machine and model files are read only when one of them runs.
#include <cstdio>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "cli/cmd_plan.h"
#include "cli/commands.h"
#include "trireme/base/error.h"

namespace trireme::cli {

namespace {

constexpr Command kParts[] = {
    {"estimate-memory", "say whether a model fits, and what is the least that must change", &cmd_plan_memory},
    {"score", "predict tables of published measurements and say how far off", &cmd_plan_score},
};

}  // namespace

int cmd_plan(const std::vector<std::string>& args) {
  const std::string name = args.empty() ? "--help" : args[0];
  for (const Command& part : kParts) {
    if (name == part.name) return part.main({args.begin() + 1, args.end()});
  }
  if (name == "--help" || name == "-h") {
    std::fputs(
        "usage: trireme plan --model M --cluster C --global-batch N [FLAGS]   search for the fastest plan\n"
        "       trireme plan PART [ARGUMENTS]\n\nparts:\n",
        stdout);
    for (const Command& part : kParts) std::printf("  %-16s%s\n", part.name, part.summary);
    std::fputs("\n'trireme plan PART --help' tells about one.\n\n", stdout);
    if (args.empty()) return exit_code(ErrorKind::kConfig);
    return cmd_plan_search(args);
  }
  if (name.starts_with('-')) return cmd_plan_search(args);
  std::vector<std::string> known;
  for (const Command& part : kParts) known.emplace_back(part.name);
  const std::string hint = did_you_mean(name, known);
  std::fprintf(stderr, "[plan] unknown part '%s'%s 'trireme plan --help' lists all.\n", name.c_str(),
               hint.empty() ? "." : hint.c_str());
  return exit_code(ErrorKind::kConfig);
}

}  // namespace trireme::cli
