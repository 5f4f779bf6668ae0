#include "comm/transport/wait_policy.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <istream>
#include <string>
#include <vector>

#include "base/str.h"

namespace trireme::comm {
namespace {

thread_local bool t_background = false;

// Cores by the limit of one cgroup, version 2 or 1; 0 when there is none or it cannot be read.
double cores_of(const std::string& folder) {
  double quota = 0;
  double period = 0;
  if (std::ifstream v2(folder + "/cpu.max"); v2) {
    std::string text;
    if (v2 >> text >> period && text != "max" && period > 0) return std::strtod(text.c_str(), nullptr) / period;
    return 0;
  }
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return 0;
}

bool has_controller(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

void set_background_thread(bool background) noexcept { t_background = background; }
bool is_background_thread() noexcept { return t_background; }

double quota_cores(std::istream& membership, const std::string& mount) {
  double least = 0;
  std::string line;
  while (std::getline(membership, line)) {
    // "4:cpu,cpuacct:/batch/job7" of version 1, "0::/system.slice/job7.service" of version 2
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::vector<std::string> hierarchies;
    if (controllers.empty()) hierarchies = {mount, mount + "/unified"};
    if (has_controller(controllers, "cpu")) hierarchies = {str(mount, "/cpu"), str(mount, "/", controllers)};
    // A limit above holds too. In a container the path may be the host's: then only the end of the walk is there.
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      for (const std::string& hierarchy : hierarchies) {
        const double cores = cores_of(hierarchy + path);
        if (cores > 0) least = least > 0 ? std::min(least, cores) : cores;
      }
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least;
}

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cores = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 1;
  std::ifstream membership("/proc/self/cgroup");
  if (const double quota = quota_cores(membership, "/sys/fs/cgroup"); quota > 0)
    cores = std::min(cores, static_cast<int>(std::floor(quota)));
  return std::max(cores, 1);
}

WaitPolicy::WaitPolicy(int num_local_ranks)
    : num_cores_(usable_cores()),
      crowded_(num_local_ranks > num_cores_),
      loadavg_fd_(open("/proc/loadavg", O_RDONLY | O_CLOEXEC)) {}

WaitPolicy::~WaitPolicy() {
  if (loadavg_fd_ >= 0) close(loadavg_fd_);
}

void WaitPolicy::yield() noexcept { sched_yield(); }

bool WaitPolicy::core_to_spare() const noexcept {
  char text[128];
  const ssize_t got = loadavg_fd_ < 0 ? -1 : pread(loadavg_fd_, text, sizeof(text) - 1, 0);
  if (got <= 0) return false;
  text[got] = '\0';
  // "0.20 0.18 0.12 3/345 11206": threads that want to run, before the slash, this one among them.
  const char* slash = std::strchr(text, '/');
  if (slash == nullptr) return false;
  const char* start = slash;
  while (start > text && start[-1] != ' ') --start;
  return std::strtol(start, nullptr, 10) <= num_cores_;
}

}  // namespace trireme::comm
