#include "doctor/cgroup.h"

#include <functional>

#include "base/str.h"
#include "diagnose/scan.h"

namespace trireme::doctor {
namespace {

using diagnose::after;

/// The group's path for a controller of version 1, or the one path of version 2 (controller ""); nullopt: not in one.
std::optional<std::string> group_path(std::string_view text, std::string_view controller) {
  while (!text.empty()) {
    const std::string_view line = diagnose::until(text, "\n");
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string names = str(",", line.substr(first + 1, second - first - 1), ",");
    const bool found = controller.empty() ? names == ",," : names.find(str(",", controller, ",")) != std::string::npos;
    if (found) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

/// The folder of a path, then those above it up to the mount. A container often sees a path of the host that is not mounted in it; then the mount
/// itself is its group.
void each_level(const std::string& mount, std::string path, const std::function<void(const std::string&)>& visit) {
  while (!path.empty() && path != "/") {
    visit(mount + path);
    path.resize(path.rfind('/'));
  }
  visit(mount);
}

void read_version_2(const Place& place, const std::string& path, CgroupLimits& limits) {
  each_level(place.sys + "/fs/cgroup", path, [&](const std::string& folder) {
    if (const auto bytes = read_number_file(folder + "/memory.max");
        bytes && (!limits.memory_bytes || *bytes < *limits.memory_bytes)) {
      limits.memory_bytes = bytes;
      limits.memory_used_bytes = read_number_file(folder + "/memory.current");
      limits.memory_file = folder + "/memory.max";
    }
    if (const auto text = read_text_file(folder + "/cpu.max")) {
      const auto quota = diagnose::leading_number<double>(*text);
      const auto rest = after(*text, " ");
      const auto period = rest ? diagnose::leading_number<double>(*rest) : std::nullopt;
      if (quota && period && *period > 0 && (!limits.cpus || *quota / *period < *limits.cpus)) {
        limits.cpus = *quota / *period;
        limits.cpu_file = folder + "/cpu.max";
        const std::string stat = read_text_file(folder + "/cpu.stat").value_or("");
        if (const auto count = after(stat, "nr_throttled "))
          limits.throttled = diagnose::leading_number<int64_t>(*count);
      }
    }
    if (const auto pids = read_number_file(folder + "/pids.max"); pids && (!limits.pids || *pids < *limits.pids))
      limits.pids = pids;
  });
}

void read_version_1(const Place& place, std::string_view groups, CgroupLimits& limits) {
  constexpr int64_t kNoLimit = int64_t{1} << 60;  // written as the largest number of pages
  if (const auto path = group_path(groups, "memory")) {
    each_level(place.sys + "/fs/cgroup/memory", *path, [&](const std::string& folder) {
      const auto bytes = read_number_file(folder + "/memory.limit_in_bytes");
      if (!bytes || *bytes >= kNoLimit || (limits.memory_bytes && *bytes >= *limits.memory_bytes)) return;
      limits.memory_bytes = bytes;
      limits.memory_used_bytes = read_number_file(folder + "/memory.usage_in_bytes");
      limits.memory_file = folder + "/memory.limit_in_bytes";
    });
  }
  if (const auto path = group_path(groups, "cpu")) {
    each_level(place.sys + "/fs/cgroup/cpu", *path, [&](const std::string& folder) {
      const auto quota = read_number_file(folder + "/cpu.cfs_quota_us");
      const auto period = read_number_file(folder + "/cpu.cfs_period_us");
      if (!quota || !period || *quota <= 0 || *period <= 0) return;
      const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
      if (limits.cpus && cpus >= *limits.cpus) return;
      limits.cpus = cpus;
      limits.cpu_file = folder + "/cpu.cfs_quota_us";
      const std::string stat = read_text_file(folder + "/cpu.stat").value_or("");
      if (const auto count = after(stat, "nr_throttled ")) limits.throttled = diagnose::leading_number<int64_t>(*count);
    });
  }
  if (const auto path = group_path(groups, "pids")) {
    each_level(place.sys + "/fs/cgroup/pids", *path, [&](const std::string& folder) {
      if (const auto pids = read_number_file(folder + "/pids.max"); pids && (!limits.pids || *pids < *limits.pids))
        limits.pids = pids;
    });
  }
}

}  // namespace

CgroupLimits read_cgroup_limits(const Place& place) {
  CgroupLimits limits;
  const std::string groups = read_text_file(place.proc + "/self/cgroup").value_or("");
  if (const auto path = group_path(groups, "")) read_version_2(place, *path, limits);
  read_version_1(place, groups, limits);
  return limits;
}

}  // namespace trireme::doctor
