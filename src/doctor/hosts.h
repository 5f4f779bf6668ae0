// The same on other hosts, over ssh.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "diagnose/report.h"

namespace trireme::doctor {

/// Hosts of a file, one a line: "node1", "user@node1", with "slots=8" or ":8" behind it, as mpirun and others have it; "#" begins a comment. Each host
/// once.
///
/// Errors   kIo: no such file. kConfig with file:line: a name that is none (it would be taken for an option of ssh, say), or no host at all.
[[nodiscard]] std::vector<std::string> read_hostfile(const std::string& path);

struct HostsOptions {
  std::vector<std::string> hosts;
  std::string program;                      ///< absolute path of `trireme`; where a host lacks it, PATH is looked in
  std::chrono::milliseconds limit{30'000};  ///< for each host
};

/// Runs `trireme doctor --json` on each host (64 at a time), by `ssh -o BatchMode=yes`, or directly for this one, and joins the reports, every row
/// and finding with its host. Hosts that do not answer are named; clocks and versions are compared. [blocking]
///
/// Threads  call it while the process has one thread.
[[nodiscard]] diagnose::Report examine_hosts(const HostsOptions& options);

}  // namespace trireme::doctor
