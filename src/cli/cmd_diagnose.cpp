// `trireme diagnose`: the files of a job, or the job itself, read and reasoned about; the work is src/diagnose/job.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/flag_errors.h"
#include "diagnose/job/diagnose.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

constexpr const char* kHelp =
    "usage: trireme diagnose PATH... [--world-size N] [--json]\n"
    "       trireme diagnose --job ID [PATH...] [--json]\n"
    "\n"
    "Says what went wrong with a job, most probable cause first, with the lines that show it and what to do. PATH is a "
    "file, a run folder, or - for\n"
    "standard input; each is recognised by its content, in any mix:\n"
    "  run folders of 'trireme run' (logs, failure.json, collective traces, live too), logs of torchrun, mpirun and "
    "Slurm, NCCL and c10d logs,\n"
    "  flight-recorder dumps (pickle or JSON, torch >= 2.3), memory snapshots, kernel logs, and what 'trireme doctor "
    "--from' reads\n"
    "\n"
    "  --job ID         the run folder of this job, and the state of its processes while it runs\n"
    "  --world-size N   how many ranks the job has, where the files do not tell\n"
    "  --json           {\"schema\": 1, \"findings\": [...], \"facts\": {...}, \"files\": [...]}\n"
    "  --help           this text\n"
    "\n"
    "exit codes: 0 nothing found, or warnings only; 3 a fault was found; 2 wrong use; 1 nothing could be read\n";

/// "12 files read: 4 collective trace, 8 job log".
std::string what_was_read(const diagnose::Report& report) {
  std::map<std::string, int> kinds;
  for (const diagnose::FileNote& file : report.files) {
    for (const std::string& kind : file.kinds) ++kinds[kind];
  }
  std::vector<std::string> parts;
  for (const auto& [kind, count] : kinds) parts.push_back(str(count, " ", kind));
  return str(report.files.size(), report.files.size() == 1 ? " file" : " files", " read",
             parts.empty() ? "" : ": " + join(parts));
}

bool is_silent(const diagnose::FileNote& file) {
  return file.kinds.empty() && (file.note == "empty" || file.note.starts_with("nothing that is known") ||
                                file.note.starts_with("binary data of a kind"));
}

/// Files below a folder that hold nothing of interest are one line; what was named itself gets its own, and in the JSON each does.
void fold_silent_files(diagnose::Report& report, const std::vector<std::string>& named) {
  std::vector<diagnose::FileNote> kept;
  size_t silent = 0;
  for (const diagnose::FileNote& file : report.files) {
    if (is_silent(file) && std::find(named.begin(), named.end(), file.file) == named.end()) {
      ++silent;
    } else {
      kept.push_back(file);
    }
  }
  if (silent > 0)
    kept.push_back(
        {str(silent, silent == 1 ? " other file" : " other files"), {}, "empty, or nothing in it that is known"});
  report.files = std::move(kept);
}

}  // namespace

int cmd_diagnose(const std::vector<std::string>& args) {
  diagnose::DiagnoseRequest request;
  bool json = false;
  bool help = false;
  CLI::App app;
  app.set_help_flag();
  app.add_option("paths", request.paths);
  app.add_option("--job", request.job);
  app.add_option("--world-size", request.world_size)->check(whole_number(1, 1 << 20));
  app.add_flag("--json", json);
  app.add_flag("--help,-h", help);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::ParseError& error) {
    throw_flag_error(app, error, "cli.diagnose", "trireme diagnose");
  }
  if (help) return std::fputs(kHelp, stdout) < 0 ? 1 : 0;
  if (request.paths.empty() && request.job.empty()) {
    throw Error(ErrorKind::kConfig,
                "[cli.diagnose] nothing to read; a file, a run folder or --job ID is required. Example: trireme "
                "diagnose runs/<folder>");
  }
  diagnose::Report report = diagnose::diagnose(request);
  bool any_read = false;
  for (const diagnose::FileNote& file : report.files)
    any_read |= !file.kinds.empty() || file.note.empty() || is_silent(file);
  if (json) {
    std::printf("%s\n", diagnose::to_json(report).c_str());
  } else {
    const std::string read = what_was_read(report);
    fold_silent_files(report, request.paths);
    diagnose::TextOptions options;
    options.nothing = "nothing found: no line or record shows a fault that is known";
    options.colour = isatty(STDOUT_FILENO) != 0;
    std::printf("%s\n\n%s", read.c_str(), diagnose::to_text(report, options).c_str());
  }
  if (report.has_errors()) return 3;
  return any_read || !report.findings.empty() ? 0 : 1;
}

}  // namespace trireme::cli
