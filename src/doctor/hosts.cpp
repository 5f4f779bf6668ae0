#include "doctor/hosts.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "base/str.h"
#include "diagnose/scan.h"
#include "doctor/interfaces.h"
#include "doctor/probe.h"
#include "doctor/tool.h"
#include "trireme/base/error.h"

namespace trireme::doctor {
namespace {

constexpr const char* kClockRow = "clock of the host";

bool is_host_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name[0] != '-' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@[]:%") ==
             std::string_view::npos;
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// Its clock first, then its report. The clock is compared with the moment at which its line arrives, so the way over the network counts as difference.
std::string remote_command(const std::string& program) {
  const std::string path = quoted(program);
  return str("date +%s%N; if [ -x ", path, " ]; then exec ", path,
             " doctor --json; else exec trireme doctor --json; fi");
}

void unreachable(Report& report, const std::string& host, const std::string& why, const std::string& advice) {
  add_row(report, "host", Check::State::kError, why);
  add_finding(report, "hosts.unreachable", Severity::kError, 0.95, str(host, " gave no report: ", why), advice,
              str("ssh ", host), why);
}

void examine_one(const std::string& host, const HostsOptions& options, Report& report) {
  const bool here = host == "localhost" || host == own_host_name();
  const std::string command = remote_command(options.program);
  std::vector<std::string> words = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", host, command};
  if (here) words = {"sh", "-c", command};
  const ToolOutput output = run_tool(words, options.limit);
  const std::string by_hand = str("Try by hand: ssh -o BatchMode=yes ", host,
                                  " true. It must work without a password (ssh-copy-id ", host, ").");
  if (output.missing) return unreachable(report, host, "there is no ssh in PATH", "apt install openssh-client");
  if (output.timed_out) {
    return unreachable(report, host, str("no answer within ", static_cast<double>(options.limit.count()) / 1000, " s"),
                       by_hand);
  }
  const size_t line_end = output.out.find('\n');
  const auto remote_ns = diagnose::whole_number(std::string_view(output.out).substr(0, line_end));
  if (!remote_ns || line_end == std::string::npos) {
    const size_t end = output.err.find_last_not_of('\n');
    const size_t begin = end == std::string::npos ? 0 : output.err.rfind('\n', end) + 1;
    return unreachable(report, host,
                       output.err.empty() ? str("ssh ended with exit code ", output.exit_code)
                                          : output.err.substr(begin, std::min<size_t>(200, end + 1 - begin)),
                       by_hand);
  }
  try {
    report = diagnose::report_from_json(std::string_view(output.out).substr(line_end + 1));
  } catch (const Error&) {
    return unreachable(report, host,
                       str("no 'trireme doctor' there: ",
                           output.err.empty() ? str("exit code ", output.exit_code) : output.err.substr(0, 200)),
                       str("Install Trireme there in the same folder (", options.program,
                           "), or so that it is in PATH of a shell without login."));
  }
  const double arrived = std::chrono::duration<double>(output.first_byte.time_since_epoch()).count();
  const double difference = static_cast<double>(*remote_ns) / 1e9 - arrived;
  add_row(report, kClockRow, Check::State::kOk, str(std::round(difference * 1000) / 1000, " s"));
}

void set_host(Report& report, const std::string& host) {
  for (Check& check : report.checks) check.host = host;
  for (Finding& finding : report.findings) finding.host = host;
  for (diagnose::Port& port : report.facts.ports) port.host = host;
  if (report.facts.topology) report.facts.topology->host = host;
  for (diagnose::Topology& topology : report.facts.more_topologies) topology.host = host;
}

/// Takes the rows with the clocks away and says how far they are apart.
void compare_clocks(Report& report) {
  int hosts = 0;
  double least = 0;
  double most = 0;
  std::string behind;
  std::string ahead;
  for (const Check& check : report.checks) {
    if (check.name != kClockRow) continue;
    ++hosts;
    const double difference = diagnose::leading_number<double>(check.text).value_or(0);
    if (behind.empty() || difference < least) {
      least = difference;
      behind = check.host;
    }
    if (ahead.empty() || difference > most) {
      most = difference;
      ahead = check.host;
    }
  }
  std::erase_if(report.checks, [](const Check& check) { return check.name == kClockRow; });
  if (hosts < 2) return;
  constexpr double kTolerated = 1;
  const double apart = most - least;
  const bool bad = apart > kTolerated;
  add_row(report, "clocks", bad ? Check::State::kWarning : Check::State::kOk,
          str("at most ", std::round(apart * 1000) / 1000, " s apart (the network's delay included)"));
  if (!bad) return;
  add_finding(report, "hosts.clocks", Severity::kWarning, 0.9,
              str("the clocks of ", ahead, " and ", behind, " are ", std::round(apart * 10) / 10, " s apart"),
              "Logs and traces of the ranks do not line up, and certificates or file times mislead. On each host: "
              "systemctl enable --now chrony (or systemd-timesyncd)");
}

/// Unlike versions on hosts of one job.
void compare_versions(const std::map<std::string, diagnose::Versions>& versions, Report& report) {
  const auto compare = [&](const char* what, std::optional<std::string> diagnose::Versions::* member,
                           Severity severity) {
    std::map<std::string, std::vector<std::string>> hosts;
    for (const auto& [host, one] : versions) {
      if (one.*member) hosts[*(one.*member)].push_back(host);
    }
    if (hosts.size() < 2) return;
    std::string text;
    for (const auto& [version, names] : hosts) text += str(text.empty() ? "" : "; ", version, " on ", join(names));
    add_finding(report, str("hosts.", what, "_differs"), severity, 0.8,
                str("hosts have unlike versions of ", what, ": ", text),
                "Ranks of one job need the same. Update the odd ones.");
  };
  compare("NCCL", &diagnose::Versions::nccl, Severity::kError);
  compare("driver", &diagnose::Versions::driver, Severity::kWarning);
  compare("LibTorch", &diagnose::Versions::torch, Severity::kError);
}

}  // namespace

std::vector<std::string> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorKind::kIo, str("[doctor.hostfile] ", path, " cannot be read."));
  std::vector<std::string> hosts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::string_view text = diagnose::trimmed(diagnose::until(line, "#"));
    std::string_view host = diagnose::until(text, " \t");
    // "node1:8", but not the colons of an IPv6 address
    if (std::count(host.begin(), host.end(), ':') == 1) host = diagnose::until(host, ":");
    if (host.empty() && text.empty()) continue;
    if (!is_host_name(host)) {
      throw Error(ErrorKind::kConfig,
                  str("[doctor.hostfile] ", path, ":", number, ": '", std::string(host.substr(0, 60)),
                      "' is no host name; one host a line is required, as 'node1' or 'node1 slots=8'."));
    }
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.emplace_back(host);
  }
  if (hosts.empty())
    throw Error(ErrorKind::kConfig, str("[doctor.hostfile] ", path,
                                        " names no host; one a line is required, as 'node1' or 'node1 slots=8'."));
  return hosts;
}

Report examine_hosts(const HostsOptions& options) {
  constexpr size_t kAtOnce = 64;
  Report all;
  std::map<std::string, diagnose::Versions> versions;
  for (size_t first = 0; first < options.hosts.size(); first += kAtOnce) {
    std::vector<Probe> probes;
    for (size_t i = first; i < std::min(first + kAtOnce, options.hosts.size()); ++i) {
      const std::string& host = options.hosts[i];
      probes.push_back({host, options.limit + std::chrono::seconds(5),
                        [&options, host](Report& report) { examine_one(host, options, report); }});
    }
    std::vector<Report> reports = run_probes_apart(probes);
    for (size_t i = 0; i < reports.size(); ++i) {
      const std::string& host = probes[i].name;
      set_host(reports[i], host);
      versions[host] = reports[i].facts.versions;
      const bool answered = std::none_of(reports[i].findings.begin(), reports[i].findings.end(),
                                         [](const Finding& finding) { return finding.code == "hosts.unreachable"; });
      if (answered) all.hosts.push_back(host);
      reports[i].hosts.clear();
      join_reports(all, std::move(reports[i]));
    }
  }
  compare_clocks(all);
  compare_versions(versions, all);
  all.sort();
  return all;
}

}  // namespace trireme::doctor
