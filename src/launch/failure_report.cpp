#include "launch/failure_report.h"

#include <sys/klog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/log.h"
#include "base/str.h"

namespace trireme::launch {
namespace {

constexpr int kSyslogReadAll = 3;  // SYSLOG_ACTION_READ_ALL, which has no name in glibc

/// "<mount>/<path of this process>/<file>" of the memory cgroup, version 2 or 1; empty when there is none.
std::string memory_cgroup_file() {
  std::ifstream own("/proc/self/cgroup");
  std::string line;
  std::vector<std::string> candidates;
  while (std::getline(own, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      candidates.push_back("/sys/fs/cgroup" + path + "/memory.events");
      candidates.push_back("/sys/fs/cgroup/unified" + path + "/memory.events");
    } else if (controllers.find("memory") != std::string::npos) {
      candidates.push_back("/sys/fs/cgroup/memory" + path + "/memory.oom_control");
      candidates.push_back("/sys/fs/cgroup/memory/memory.oom_control");  // inside a container
    }
  }
  for (const std::string& candidate : candidates) {
    if (access(candidate.c_str(), R_OK) == 0) return candidate;
  }
  return {};
}

bool kernel_log_has_kill_of(pid_t pid) {
  std::string log(size_t{1} << 18, '\0');
  const int got = klogctl(kSyslogReadAll, log.data(), static_cast<int>(log.size()));
  if (got <= 0) return false;
  log.resize(static_cast<size_t>(got));
  return log.find(str("Killed process ", pid, " (")) != std::string::npos ||
         log.find(str("Killed process ", pid, ",")) != std::string::npos;
}

std::string clock_time(int64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%H:%M:%S", &local);
  return text.data();
}

std::string in_seconds(double seconds) {
  if (seconds < 1) return str(static_cast<int>(seconds * 1000), " ms");
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), seconds < 10 ? "%.1f s" : "%.0f s", seconds);
  return text.data();
}

std::string how(const RankEnd& end) {
  return end.signal != 0 ? signal_name(end.signal) : str("exit code ", end.exit_code);
}

nlohmann::json to_json(const RankEnd& end) {
  nlohmann::json out = {{"rank", end.rank},
                        {"pid", end.pid},
                        {"after_s", end.after_s},
                        {"unix_ns", end.unix_ns},
                        {"by_launcher", end.by_launcher}};
  if (end.signal != 0) {
    out["signal"] = signal_name(end.signal);
  } else {
    out["exit_code"] = end.exit_code;
  }
  return out;
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? str("SIG", name) : str("signal ", signal);
}

int signal_number(const std::string& name) {
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = sigabbrev_np(signal);
    if (name == std::to_string(signal)) return signal;
    if (known != nullptr && (name == known || name == str("SIG", known))) return signal;
  }
  return 0;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

long long read_oom_kills() {
  std::ifstream file(memory_cgroup_file());
  std::string key;
  long long value = 0;
  while (file >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return -1;
}

std::string sigkill_hint(pid_t pid, long long oom_kills_at_start) {
  if (kernel_log_has_kill_of(pid)) return "kernel log: out of memory";
  const long long now = read_oom_kills();
  if (oom_kills_at_start >= 0 && now > oom_kills_at_start) {
    return str("the kernel's OOM killer: ", memory_cgroup_file(), " counts ", now - oom_kills_at_start, " more");
  }
  return "not sent by the launcher: by hand, by a batch system, or by the kernel's OOM killer, see dmesg";
}

std::string short_path(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path here = std::filesystem::current_path(ignored);
  const std::string prefix = here.string() + "/";
  return path.starts_with(prefix) ? path.substr(prefix.size()) : path;
}

std::string describe(const RankEnd& end, const std::string& hint) {
  return str("rank ", end.rank, " on ", host_name(), ", pid ", end.pid, ", ", how(end),
             hint.empty() ? "" : str(" (", hint, ")"), ", after ", in_seconds(end.after_s));
}

std::string first_failure_line(const RankEnd& first, const std::string& hint, int num_ranks, const std::string& run_dir,
                               const std::string& log) {
  const std::string folder = short_path(run_dir);
  return str(
      "[launch] FAILED, 1 of ", num_ranks, num_ranks == 1 ? " rank" : " ranks", ". First, ", clock_time(first.unix_ns),
      ": ", describe(first, hint),
      log.empty() ? str("; it wrote nothing into ", folder, "/logs.\n") : str("; see ", folder, "/", log, ".\n"));
}

std::string others_line(const JobResult& result) {
  if (!result.first) return {};
  std::map<std::string, std::vector<int>> groups;
  for (const RankEnd& end : result.ends) {
    if (end.rank == result.first->rank || !end.failed()) continue;
    groups[end.by_launcher ? str("ended by the launcher (", how(end), ")") : how(end)].push_back(end.rank);
  }
  if (groups.empty()) return {};
  std::vector<std::string> parts;
  for (auto& [text, ranks] : groups) {
    std::sort(ranks.begin(), ranks.end());
    parts.push_back(str(ranks.size() == 1 ? "rank " : "ranks ", join(ranks), " ", text));
  }
  return str("[launch] Then, after rank ", result.first->rank, ": ", join(parts, "; "), ".\n");
}

void write_failure_json(const JobSpec& spec, const JobResult& result, const std::string& hint) {
  nlohmann::json out = {{"schema", 1},
                        {"job_id", result.job_id},
                        {"host", host_name()},
                        {"command", spec.command},
                        {"num_ranks", spec.num_ranks},
                        {"restarts", result.restarts},
                        {"exit_code", result.exit_code}};
  if (result.interrupted_by != 0) out["interrupted_by"] = signal_name(result.interrupted_by);
  if (result.first) {
    out["first"] = to_json(*result.first);
    if (!hint.empty()) out["first"]["hint"] = hint;
    if (!result.first_log.empty()) out["first"]["log"] = result.first_log;
  }
  if (!result.explanations.empty()) out["why"] = result.explanations;
  out["ends"] = nlohmann::json::array();
  for (const RankEnd& end : result.ends) out["ends"].push_back(to_json(end));
  const std::string path = result.run_dir + "/failure.json";
  std::ofstream file(path);
  file << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  if (!file.flush()) log::warn("launch", "cannot write ", path, ": ", std::strerror(errno));
}

}  // namespace trireme::launch
