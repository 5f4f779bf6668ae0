#include "diagnose/job/find_job.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "base/str.h"
#include "diagnose/scan.h"
#include "trireme/base/error.h"

namespace trireme::diagnose {
namespace {

namespace fs = std::filesystem;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  return text;
}

/// NAME=value out of /proc/PID/environ, whose entries end with NUL.
std::string variable(const std::string& environment, std::string_view name) {
  for (size_t at = 0; at < environment.size();) {
    const size_t end = std::min(environment.find('\0', at), environment.size());
    const std::string_view entry = std::string_view(environment).substr(at, end - at);
    if (entry.starts_with(name) && entry.size() > name.size() && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1));
    at = end + 1;
  }
  return {};
}

struct Process {
  int pid = 0;
  int parent = 0;
  char state = '?';
  int rank = 0;
  uint64_t start_ticks = 0;  ///< since the host was started
};

/// State and parent: what follows the name in parentheses, which may hold anything.
bool read_stat(int pid, Process& process) {
  const std::string stat = contents(str("/proc/", pid, "/stat"));
  const size_t close = stat.rfind(')');
  if (close == std::string::npos || close + 2 >= stat.size()) return false;
  const std::vector<std::string_view> fields = words(std::string_view(stat).substr(close + 2), 20);
  if (fields.size() < 2) return false;
  process.pid = pid;
  process.state = fields[0][0];
  process.parent = leading_number<int>(fields[1]).value_or(0);
  if (fields.size() > 19) process.start_ticks = leading_number<uint64_t>(fields[19]).value_or(0);
  return true;
}

struct Running {
  std::string run_dir;
  std::optional<int> world_size;
  std::vector<Process> processes;
};

std::map<std::string, Running> running_jobs(const std::string& id) {
  std::map<std::string, Running> jobs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (!all_digits(name)) continue;
    const std::string environment = contents(entry.path().string() + "/environ");
    const std::string job = variable(environment, "TRIREME_JOB_ID");
    if (job.empty() || !job.starts_with(id)) continue;
    const auto rank = leading_number<int>(variable(environment, "RANK"));
    Process process;
    if (!rank || !read_stat(leading_number<int>(name).value_or(0), process)) continue;
    process.rank = *rank;
    Running& running = jobs[job];
    running.run_dir = variable(environment, "TRIREME_RUN_DIR");
    running.world_size = leading_number<int>(variable(environment, "WORLD_SIZE"));
    running.processes.push_back(process);
  }
  return jobs;
}

std::vector<std::string> folders_of(const std::string& id) {
  std::vector<std::string> found;
  for (const std::string& parent : {std::string("runs"), str("/tmp/trireme-", getuid())}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(parent, error)) {
      std::error_code ignored;
      const std::string name = entry.path().filename().string();
      const size_t dash = name.rfind('-');
      if (dash != std::string::npos && name.substr(dash + 1).starts_with(id) && entry.is_directory(ignored))
        found.push_back(entry.path().string());
    }
  }
  return found;
}

}  // namespace

char state_of_writer(const profile::TraceSnapshot& trace) {
  std::array<char, 256> host{};
  if (trace.closed || gethostname(host.data(), host.size() - 1) != 0 || trace.host != host.data()) return '?';
  Process process;
  if (!read_stat(trace.pid, process)) return 'X';
  // Another process may have the number by now: one that began after the last call.
  uint64_t last_ns = 0;
  for (const profile::TraceRecord& record : trace.records)
    last_ns = std::max({last_ns, record.queued_ns, record.started_ns, record.finished_ns});
  const auto ticks_per_s = static_cast<uint64_t>(std::max(1L, sysconf(_SC_CLK_TCK)));
  const bool other = !trace.records.empty() && process.start_ticks / ticks_per_s > last_ns / 1'000'000'000 + 1;
  return other || process.state == 'Z' ? 'X' : process.state;
}

FoundJob find_job(const std::string& id) {
  if (id.empty())
    throw Error(ErrorKind::kInvalidArgument,
                "[diagnose.find_job] the id of the job is empty; 'trireme run' prints it in its first line.");
  const std::map<std::string, Running> running = running_jobs(id);
  if (running.size() > 1) {
    std::vector<std::string> ids;
    for (const auto& [job, one] : running) ids.push_back(job);
    throw Error(
        ErrorKind::kInvalidArgument,
        str("[diagnose.find_job] '", id, "' begins the ids of several jobs: ", join(ids), ". Give more digits."));
  }
  FoundJob found;
  if (running.size() == 1) {
    const Running& job = running.begin()->second;
    found.run_dir = job.run_dir;
    found.world_size = job.world_size;
    // A rank's own children have its environment too: the topmost is the rank.
    for (const Process& process : job.processes) {
      bool is_child = false;
      for (const Process& other : job.processes) is_child |= other.pid == process.parent && other.rank == process.rank;
      if (!is_child) found.ranks[process.rank] = {process.pid, process.state};
    }
    return found;
  }
  const std::vector<std::string> folders = folders_of(id);
  if (folders.size() > 1) {
    throw Error(ErrorKind::kInvalidArgument, str("[diagnose.find_job] '", id, "' is the end of several run folders: ",
                                                 join(folders), ". Name the folder itself."));
  }
  if (folders.empty()) {
    throw Error(
        ErrorKind::kInvalidArgument,
        str("[diagnose.find_job] no job '", id, "': no process of it runs here, and neither runs/ nor /tmp/trireme-",
            getuid(), "/ has a folder that ends with it. Name the run folder itself: trireme diagnose FOLDER"));
  }
  found.run_dir = folders.front();
  return found;
}

}  // namespace trireme::diagnose
