#include "cli/run_spec.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/str.h"
#include "launch/failure_report.h"

namespace trireme::cli {
namespace {

using launch::JobSpec;
using launch::Show;

int parse_int(const std::string& text, const char* flag) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) wrong_flag(str(flag, ": '", text, "' is no number."));
  return value;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (start <= text.size()) {
    const size_t stop = std::min(text.find(at, start), text.size());
    if (stop > start) parts.push_back(text.substr(start, stop - start));
    start = stop + 1;
  }
  return parts;
}

int num_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

int num_gpus() {
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) return static_cast<int>(split(visible, ',').size());
  int count = 0;
  for (int i = 0; i < 64; ++i) count += access(str("/dev/nvidia", i).c_str(), F_OK) == 0 ? 1 : 0;
  return count;
}

int num_ranks(const std::string& text) {
  if (text == "cpu") return num_cpus();
  if (text == "gpu") {
    if (num_gpus() == 0) {
      wrong_flag("--nproc-per-node gpu: this host shows no GPU (/dev/nvidia0, CUDA_VISIBLE_DEVICES).");
    }
    return num_gpus();
  }
  if (text == "auto") return num_gpus() > 0 ? num_gpus() : num_cpus();
  if (text.find_first_not_of("+-0123456789") != std::string::npos || text.empty()) {
    wrong_flag(str("--nproc-per-node is '", text, "'; a number, cpu, gpu or auto is required."));
  }
  const int value = parse_int(text, "--nproc-per-node");
  if (value < 1) wrong_flag(str("--nproc-per-node ", value, ": at least 1 rank is required."));
  return value;
}

/// torchrun's notation: "3", or "0:1,1:2"; bit 1 is stdout, bit 2 stderr.
std::map<int, int> parse_std(const std::string& text, const char* flag, int num_ranks) {
  std::map<int, int> masks;
  for (const std::string& part : split(text, ',')) {
    const size_t colon = part.find(':');
    const int mask = parse_int(colon == std::string::npos ? part : part.substr(colon + 1), flag);
    if (mask < 0 || mask > 3) {
      wrong_flag(str(flag, " ", text, ": ", mask, " is none of 0, 1 (stdout), 2 (stderr), 3 (both)."));
    }
    if (colon != std::string::npos) {
      const int rank = parse_int(part.substr(0, colon), flag);
      if (rank < 0 || rank >= num_ranks) wrong_flag(str(flag, " ", text, ": there is no rank ", rank, "."));
      masks[rank] = mask;
    } else {
      for (int rank = 0; rank < num_ranks; ++rank) masks[rank] = mask;
    }
  }
  return masks;
}

void choose_output(const RunFlags& f, JobSpec& spec) {
  auto redirects = parse_std(f.redirects, "--redirects", spec.num_ranks);
  auto tee = parse_std(f.tee, "--tee", spec.num_ranks);
  std::set<int> shown;
  for (const std::string& part : split(f.local_ranks_filter, ',')) {
    const int rank = parse_int(part, "--local-ranks-filter");
    if (rank < 0 || rank >= spec.num_ranks) {
      wrong_flag(str("--local-ranks-filter ", f.local_ranks_filter, ": there is no rank ", rank, "."));
    }
    shown.insert(rank);
  }
  for (int rank = 0; rank < spec.num_ranks; ++rank) {
    const int hidden = !shown.empty() && !shown.contains(rank) ? 3 : redirects[rank] & ~tee[rank];
    if ((hidden & 1) != 0) spec.out[rank] = Show::kNone;
    if ((hidden & 2) != 0) spec.err[rank] = Show::kNone;
  }
}

std::string python() {
  if (const char* chosen = std::getenv("PYTHON_EXEC"); chosen != nullptr && *chosen != '\0') return chosen;
  if (const char* venv = std::getenv("VIRTUAL_ENV"); venv != nullptr && *venv != '\0') return str(venv, "/bin/python");
  return "python3";
}

void choose_command(const RunFlags& f, std::vector<std::string> rest, JobSpec& spec) {
  if (rest.empty()) wrong_flag("no program was given: trireme run [FLAGS] PROGRAM [ARGUMENTS].");
  if (f.no_python && f.module) wrong_flag("--no-python and --module contradict each other.");
  const bool script = f.run_path || (rest.front().ends_with(".py") && !f.no_python && !f.module);
  if (script && access(rest.front().c_str(), R_OK) != 0) {
    wrong_flag(str("cannot read the Python script '", rest.front(), "': ", std::strerror(errno), "."));
  }
  if (f.module || script) {
    std::vector<std::string> head{python(), "-u"};  // unbuffered, as torchrun does: lines come when they are printed
    if (f.module) head.emplace_back("-m");
    rest.insert(rest.begin(), head.begin(), head.end());
  }
  spec.command = std::move(rest);
}

void choose_store(const RunFlags& f, JobSpec& spec) {
  if (!f.master_addr.empty()) spec.master_addr = f.master_addr;
  spec.master_port = f.master_port;
  spec.run_id = f.rdzv_id;
  if (f.rdzv_endpoint.empty() || f.standalone) return;
  std::string host = f.rdzv_endpoint;
  const size_t colon = host.rfind(':');
  // "::1" is an address without a port, "[::1]:29500" one with.
  if (colon != std::string::npos && (host.find(':') == colon || host[colon - 1] == ']')) {
    spec.master_port = parse_int(host.substr(colon + 1), "--rdzv-endpoint");
    host.resize(colon);
  }
  if (f.master_addr.empty() && !host.empty()) spec.master_addr = host;
}

/// Ranks look MASTER_ADDR up as it is, and no resolver knows brackets.
void strip_brackets(std::string& address) {
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  }
}

void choose_signals(const RunFlags& f, JobSpec& spec) {
  if (f.signals_to_handle.empty()) return;
  spec.forwarded_signals.clear();
  for (const std::string& name : split(f.signals_to_handle, ',')) {
    const int signal = launch::signal_number(name);
    if (signal == 0 || signal == SIGKILL || signal == SIGSTOP) {
      wrong_flag(str("--signals-to-handle: '", name, "' is no signal that can be passed on."));
    }
    spec.forwarded_signals.push_back(signal);
  }
  if (spec.forwarded_signals.empty()) {
    wrong_flag(str("--signals-to-handle: '", f.signals_to_handle, "' names no signal; for example SIGTERM,SIGINT."));
  }
}

void set_seconds(const std::optional<double>& seconds, const char* flag, std::chrono::milliseconds& place) {
  if (!seconds) return;
  if (!(*seconds >= 0 && *seconds <= 1e6)) {  // nan neither
    wrong_flag(str(flag, " is ", *seconds, "; 0 to 1000000 seconds are required."));
  }
  place = std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000));
}

}  // namespace

JobSpec make_job_spec(const RunFlags& flags, std::vector<std::string> rest) {
  JobSpec spec;
  spec.num_ranks = num_ranks(flags.nproc_per_node);
  spec.max_restarts = flags.max_restarts;
  spec.role = flags.role;
  spec.log_dir = flags.log_dir;
  spec.run_dir = flags.run_dir;
  set_seconds(flags.shutdown_timeout, "--shutdown-timeout (TORCH_ELASTIC_SHUTDOWN_TIMEOUT)", spec.grace);
  set_seconds(flags.grace, "--grace (TRIREME_GRACE)", spec.grace);
  set_seconds(flags.report_grace, "--report-grace (TRIREME_REPORT_GRACE)", spec.report_grace);
  choose_signals(flags, spec);
  choose_output(flags, spec);
  choose_store(flags, spec);
  strip_brackets(spec.master_addr);
  choose_command(flags, std::move(rest), spec);
  return spec;
}

}  // namespace trireme::cli
