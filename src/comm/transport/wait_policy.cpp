#include "comm/transport/wait_policy.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace trireme::comm {
namespace {

thread_local bool t_background = false;

// Cores granted by the cgroup's bandwidth limit; 0 when there is none or it cannot be read.
double quota_cores() {
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2) {
    std::string quota;
    double period = 0;
    if (v2 >> quota >> period && quota != "max" && period > 0) return std::strtod(quota.c_str(), nullptr) / period;
    return 0;
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return 0;
}

}  // namespace

void set_background_thread(bool background) noexcept { t_background = background; }
bool is_background_thread() noexcept { return t_background; }

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cores = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 1;
  if (const double quota = quota_cores(); quota > 0) cores = std::min(cores, static_cast<int>(std::floor(quota)));
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
  return std::atoi(start) <= num_cores_;
}

}  // namespace trireme::comm
