// `trireme doctor`: what is wrong with this host, with the hosts of a file, or with machines of which outputs were saved.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "base/env.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/external.h"
#include "cli/flag_errors.h"
#include "diagnose/reader.h"
#include "doctor/doctor.h"
#include "doctor/hosts.h"
#include "doctor/links.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

constexpr int kFaultFound = 3;  // docs/errors.md

struct Request {
  std::vector<std::string> from;
  std::string hostfile;
  double host_limit_s = 30;
  bool links = false;
  int ranks = 2;
  double link_limit_s = 60;
  bool json = false;
};

/// nullopt: help has been printed.
std::optional<Request> parse(const std::vector<std::string>& args) {
  Request request;
  CLI::App app(
      "Says what will go wrong before a job starts: driver, links, ports, network, limits, memory, kernel log.\n"
      "Ends with 0 when nothing or only warnings were found, with 3 when an error was found.");
  app.name("trireme doctor");
  app.add_option("--from", request.from,
                 "read saved outputs of other machines instead: nvidia-smi (table, -q, topo -m, nvlink --status), "
                 "rocm-smi --showtopo, amd-smi "
                 "topology, xpu-smi topology -m, ibstat, ibv_devinfo, ibstatus, dmesg, NCCL logs; recognised by "
                 "content; a folder stands for all "
                 "below it, - for standard input")
      ->type_name("FILE");
  app.add_option("--hostfile", request.hostfile,
                 "look at all hosts of this file, one a line ('node1 slots=8'), over ssh without password")
      ->type_name("FILE");
  app.add_option("--host-limit", request.host_limit_s, "give a host up after so many seconds (default 30)")
      ->type_name("S")
      ->check(number_within(0.1, 86400));
  app.add_flag("--links", request.links,
               "measure instead: memcpy, shared memory and TCP between ranks of this host, every pair, and copies and "
               "an all-reduce of its GPUs; data is "
               "checked");
  app.add_option("--ranks", request.ranks, "ranks for --links (default 2)")->type_name("N")->check(whole_number(2, 64));
  app.add_option("--link-limit", request.link_limit_s,
                 "give a measurement of --links up after so many seconds (default 60); many ranks need more")
      ->type_name("S")
      ->check(number_within(0.1, 86400));
  app.add_flag("--json", request.json, "print the result for programs (docs/formats.md)");
  if (parsed_for_help(app, args, "cli.doctor", "trireme doctor")) return std::nullopt;
  if ((request.from.empty() ? 0 : 1) + (request.hostfile.empty() ? 0 : 1) + (request.links ? 1 : 0) > 1) {
    throw Error(ErrorKind::kConfig,
                "[cli.doctor] --from, --hostfile and --links were given together; one of them is allowed. 'trireme "
                "doctor --help' tells what each does.");
  }
  return request;
}

diagnose::Report read_saved(const std::vector<std::string>& paths) {
  diagnose::Report report;
  diagnose::Readers readers = diagnose::all_readers();
  read_files(paths, readers, report);
  finish(readers, report);
  return report;
}

diagnose::Report examine(const Request& request) {
  if (!request.from.empty()) return read_saved(request.from);
  if (request.links) {
    doctor::LinkOptions options;
    options.ranks = request.ranks;
    options.limit = std::chrono::milliseconds(static_cast<int64_t>(request.link_limit_s * 1000));
    return measure_links(options);
  }
  if (!request.hostfile.empty()) {
    doctor::HostsOptions options;
    options.hosts = doctor::read_hostfile(request.hostfile);
    options.program = own_folder() + "/trireme";
    options.limit = std::chrono::milliseconds(static_cast<int64_t>(request.host_limit_s * 1000));
    return examine_hosts(options);
  }
  doctor::DoctorOptions options;
  options.train_program = find_external("train");
  return examine_host(options);
}

/// Of many hosts: what is well as one row for each of them, so that the rest is seen. JSON has all.
void sum_up_hosts(diagnose::Report& report) {
  using State = diagnose::Check::State;
  std::map<std::string, int> well;
  for (const diagnose::Check& check : report.checks) {
    if (check.state == State::kOk && !check.host.empty()) ++well[check.host];
  }
  std::erase_if(report.checks,
                [](const diagnose::Check& check) { return check.state == State::kOk && !check.host.empty(); });
  std::vector<diagnose::Check> rows;
  for (const auto& [host, count] : well) rows.push_back({"all else", State::kOk, str(count, " checks are well"), host});
  report.checks.insert(report.checks.begin(), rows.begin(), rows.end());
}

void print(const Request& request, diagnose::Report report) {
  if (request.json) {
    std::puts(to_json(report).c_str());
    return;
  }
  if (!request.hostfile.empty()) sum_up_hosts(report);
  diagnose::TextOptions options;
  options.nothing = request.from.empty() ? "Nothing wrong was found." : "Nothing wrong was found in these files.";
  options.colour = isatty(STDOUT_FILENO) == 1 && env_value("NO_COLOR") == nullptr;
  std::fputs(to_text(report, options).c_str(), stdout);
}

}  // namespace

int cmd_doctor(const std::vector<std::string>& args) {
  const std::optional<Request> request = parse(args);
  if (!request) return 0;
  const diagnose::Report report = examine(*request);
  print(*request, report);
  if (report.has_errors()) return kFaultFound;
  if (request->from.empty()) return 0;
  // Files that are not there, or of which nothing was understood, are no all-clear.
  const bool missing = std::any_of(request->from.begin(), request->from.end(), [](const std::string& path) {
    return path != "-" && access(path.c_str(), R_OK) != 0;
  });
  const bool nothing_read = std::all_of(report.files.begin(), report.files.end(),
                                        [](const diagnose::FileNote& file) { return file.kinds.empty(); });
  return missing || nothing_read ? exit_code(ErrorKind::kIo) : 0;
}

}  // namespace trireme::cli
