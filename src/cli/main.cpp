// The `trireme` binary: built-in commands, and git-style programs beside it for those that need LibTorch.
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "base/finish_output.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/external.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

constexpr Command kBuiltins[] = {
    {"run", "start ranks on this host", &cmd_run},
    {"simulate", "one step of a pipeline schedule as a time line", &cmd_simulate},
    {"plan", "predict step time and memory before anything runs", &cmd_plan},
    {"doctor", "say what is wrong with this host, or in saved outputs", &cmd_doctor},
    {"diagnose", "say what went wrong with a job, from its files or while it runs", &cmd_diagnose},
    {"completion", "print the completion script for bash or zsh", &cmd_completion},
};

/// Named so that they are refused by name, not taken for a typing mistake.
constexpr const char* kNotThereYet[] = {"calibrate", "tune"};

std::string help_text() {
  std::string text =
      "usage: trireme COMMAND [ARGUMENTS]\n"
      "\n"
      "Distributed training for LibTorch in C++: data parallelism over the CPUs of one host.\n"
      "\n"
      "commands:\n";
  const auto row = [&text](const char* name, const char* summary) {
    text += str("  ", name, std::string(12 - std::strlen(name), ' '), summary, "\n");
  };
  row(kBuiltins[0].name, kBuiltins[0].summary);
  for (const ExternalCommand& command : external_commands()) row(command.name, command.summary);
  for (const Command& command : std::span(kBuiltins).subspan(1)) row(command.name, command.summary);
  text +=
      "\n"
      "  --help, -h    this text; 'trireme COMMAND --help' tells about a command\n"
      "  --version     commit, compiler, torch, and which backends this build has\n"
      "\n"
      "environment: TRIREME_LOG=level[,component=level] sets what is logged (trace debug info warn error off)\n"
      "exit codes: 0 done; 1 failed; 2 wrong use or config; 3 a check found a fault; 4 not in this build;\n"
      "            5 timeout or lost peer; 70 a bug in Trireme; 'run' gives the failed rank's own code\n";
  return text;
}

int unknown_flag(const std::string& name) {
  const std::vector<std::string> known = {"--help", "--version"};
  const std::string hint = did_you_mean(name, known);
  std::fprintf(stderr,
               "[cli] unknown flag '%s'%s Flags of a command come after its name; 'trireme --help' lists all.\n",
               name.c_str(), hint.empty() ? "." : hint.c_str());
  return exit_code(ErrorKind::kConfig);
}

int unknown(const std::string& name) {
  if (name.front() == '-') return unknown_flag(name);
  for (const char* later : kNotThereYet) {
    if (name == later) {
      std::fprintf(stderr, "[cli] 'trireme %s' is not there yet. 'trireme --help' lists what is.\n", later);
      return exit_code(ErrorKind::kUnavailable);
    }
  }
  std::vector<std::string> known;
  for (const Command& command : kBuiltins) known.emplace_back(command.name);
  for (const ExternalCommand& command : external_commands()) {
    known.emplace_back(command.name);
    if (name != command.name) continue;
    std::fprintf(stderr,
                 "[cli] 'trireme %s' is the program trireme-%s, which is neither in %s nor in PATH. Build it: cmake "
                 "--build <build folder> --target trireme-%s\n",
                 name.c_str(), name.c_str(), own_folder().c_str(), name.c_str());
    return exit_code(ErrorKind::kUnavailable);
  }
  const std::string hint = did_you_mean(name, known);
  std::fprintf(stderr, "[cli] unknown command '%s'%s 'trireme --help' lists all.\n", name.c_str(),
               hint.empty() ? "." : hint.c_str());
  return exit_code(ErrorKind::kConfig);
}

int dispatch(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name.empty() || name == "--help" || name == "-h" || name == "help") {
    std::fputs(help_text().c_str(), name.empty() ? stderr : stdout);
    return name.empty() ? exit_code(ErrorKind::kConfig) : 0;
  }
  if (name == "--version" || name == "version") return print_version();
  for (const Command& command : kBuiltins) {
    if (name == command.name) return command.main({argv + 2, argv + argc});
  }
  if (name.find('/') == std::string::npos && name.front() != '-') exec_external(name, argv + 2);
  return unknown(name);
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  try {
    trireme::log::require_good_filter();
    return trireme::finish_output(trireme::cli::dispatch(argc, argv), "cli");
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", trireme::printable(error.what()).c_str());
    return trireme::exit_code(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[cli] %s. This is a bug in Trireme; please report it.\n",
                 trireme::printable(error.what()).c_str());
    return trireme::exit_code(trireme::ErrorKind::kInternal);
  }
}
