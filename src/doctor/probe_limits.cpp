#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/str.h"
#include "diagnose/scan.h"
#include "doctor/cgroup.h"
#include "doctor/probes.h"

namespace trireme::doctor {
namespace {

constexpr double kGib = 1073741824.0;

std::string gib(double bytes) {
  if (bytes < kGib) return str(std::lround(bytes / 1048576), " MiB");
  return str(std::round(bytes / kGib * 10) / 10, " GiB");
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : grouped(static_cast<int64_t>(limit));
}

}  // namespace

void probe_shared_memory(const Place& place, Report& report) {
  const std::string folder = place.dev + "/shm";
  struct statvfs status{};
  if (statvfs(folder.c_str(), &status) != 0) {
    add_row(report, "shared memory", Check::State::kWarning, str(folder, ": ", std::strerror(errno)));
    add_finding(
        report, "shm.missing", Severity::kWarning, 0.8, str(folder, " cannot be used: ", std::strerror(errno)),
        "NCCL and the data loaders of PyTorch need it (Trireme's own ranks do not): mount -t tmpfs tmpfs /dev/shm",
        folder);
    return;
  }
  const double total = static_cast<double>(status.f_blocks) * static_cast<double>(status.f_frsize);
  const double free = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  constexpr double kEnough = kGib;
  const bool small = free < kEnough;
  add_row(report, "shared memory", small ? Check::State::kWarning : Check::State::kOk,
          str(folder, ": ", gib(total), ", ", gib(free), " free"));
  if (!small) return;
  const bool full = total >= kEnough;
  add_finding(report, full ? "shm.full" : "shm.small", Severity::kWarning, 0.8,
              str(folder, " has ", gib(free), " free of ", gib(total)),
              full ? "Files of jobs that were killed are left there, or others use it: ls -la /dev/shm; remove what "
                     "belongs to no running job."
                   : "NCCL and data loaders die with 'No space left on device' or SIGBUS (Trireme's own ranks do not "
                     "need it). docker run --shm-size=8g or "
                     "--ipc=host; Kubernetes: an emptyDir with medium: Memory at /dev/shm; else mount -o "
                     "remount,size=8G /dev/shm",
              folder, str(gib(free), " free"));
}

void probe_limits(const Place& place, Report& report) {
  rlimit memlock{};
  rlimit files{};
  rlimit processes{};
  getrlimit(RLIMIT_MEMLOCK, &memlock);
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_NPROC, &processes);
  const bool rdma = !names_in(place.sys + "/class/infiniband").empty();
  const bool lock_bad = rdma && memlock.rlim_cur != RLIM_INFINITY;
  constexpr rlim_t kFewFiles = 1024;
  const bool few_files = files.rlim_cur < kFewFiles;
  const std::string memlock_text =
      memlock.rlim_cur == RLIM_INFINITY ? "unlimited" : gib(static_cast<double>(memlock.rlim_cur));
  add_row(report, "limits",
          lock_bad    ? Check::State::kError
          : few_files ? Check::State::kWarning
                      : Check::State::kOk,
          str("locked memory ", memlock_text, ", open files ", limit_text(files.rlim_cur), ", processes ",
              limit_text(processes.rlim_cur)));
  if (lock_bad) {
    add_finding(report, "limits.memlock", Severity::kError, 0.9,
                str("only ", memlock_text, " of memory may be locked, and there are RDMA adapters"),
                "RDMA registers its buffers: NCCL and UCX fail with 'Cannot allocate memory'. ulimit -l unlimited; for "
                "good '* - memlock unlimited' in "
                "/etc/security/limits.conf; Slurm: LimitMEMLOCK=infinity for slurmd; docker run --ulimit memlock=-1",
                "RLIMIT_MEMLOCK", memlock_text);
  }
  if (few_files) {
    add_finding(report, "limits.files", Severity::kWarning, 0.6,
                str("only ", files.rlim_cur, " files may be open at once"),
                str("Sockets to many ranks and data-loader workers use them up ('Too many open files'). ulimit -n ",
                    std::min<rlim_t>(files.rlim_max, 65536), "; for good in /etc/security/limits.conf"),
                "RLIMIT_NOFILE", limit_text(files.rlim_cur));
  }
}

void probe_memory(const Place& place, Report& report) {
  const std::string info = read_text_file(place.proc + "/meminfo").value_or("");
  const auto kib = [&](const char* key) {
    const auto rest = diagnose::after(info, key);
    return rest ? diagnose::leading_number<double>(*rest) : std::nullopt;
  };
  const auto total = kib("MemTotal:");
  const auto available = kib("MemAvailable:");
  const CgroupLimits limits = read_cgroup_limits(place);
  if (!total || !available)
    return add_row(report, "memory", Check::State::kUnknown, str(place.proc, "/meminfo does not tell"));
  double usable = *available * 1024;
  std::string text = str(gib(*total * 1024), ", ", gib(*available * 1024), " available");
  if (limits.memory_bytes) {
    const double limit = static_cast<double>(*limits.memory_bytes);
    text += str("; this cgroup may use ", gib(limit));
    if (limits.memory_used_bytes) {
      // Page cache counts as used but can be dropped; what is told is a lower limit.
      usable = std::min(usable, std::max(0.0, limit - static_cast<double>(*limits.memory_used_bytes)));
      text += str(", uses ", gib(static_cast<double>(*limits.memory_used_bytes)), " with its page cache");
    }
  }
  const bool few =
      *available * 1024 < 2 * kGib || (limits.memory_bytes && static_cast<double>(*limits.memory_bytes) < 2 * kGib);
  add_row(report, "memory", few ? Check::State::kWarning : Check::State::kOk, text);
  if (few) {
    add_finding(report, "memory.little", Severity::kWarning, 0.7, str("little host memory is left: ", gib(usable)),
                "Ranks are killed by the kernel (exit code 137). See ps aux --sort=-rss | head; raise the limit of the "
                "container or Slurm step (--mem).",
                limits.memory_bytes ? limits.memory_file : place.proc + "/meminfo", text);
  }
}

void probe_cpus(const Place& place, Report& report) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
  const auto online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const int usable = known ? CPU_COUNT(&set) : online;
  const CgroupLimits limits = read_cgroup_limits(place);
  int nodes = 0;
  for (const std::string& name : names_in(place.sys + "/devices/system/node")) {
    if (name.starts_with("node") && diagnose::all_digits(name.substr(4))) ++nodes;
  }
  const bool quota = limits.cpus && *limits.cpus < usable - 0.01;
  const bool bound = usable < online;
  const bool one = usable == 1 && online > 1;
  std::string text = str(usable, " of ", online, " CPUs usable");
  if (nodes > 0) text += str(", ", nodes, nodes == 1 ? " NUMA node" : " NUMA nodes");
  if (limits.cpus) text += str(", quota of ", std::round(*limits.cpus * 100) / 100, " CPUs");
  if (limits.throttled && *limits.throttled > 0) text += str(" (stopped ", grouped(*limits.throttled), " times)");
  add_row(report, "CPUs", quota || one ? Check::State::kWarning : Check::State::kOk, text);
  if (quota) {
    add_finding(
        report, "cpu.quota", Severity::kWarning, 0.7,
        str("the cgroup's quota is ", std::round(*limits.cpus * 100) / 100, " CPUs while ", usable, " are visible"),
        str("Programs start a thread for each visible CPU and are then stopped for the rest of every period; all ranks "
            "wait for the one that is. Set "
            "OMP_NUM_THREADS to at most ",
            std::max(1, static_cast<int>(*limits.cpus)),
            " over all ranks together, or raise the quota (docker --cpus, Kubernetes limits.cpu)."),
        limits.cpu_file);
  }
  if (one) {
    add_finding(report, "cpu.bound_to_one", Severity::kWarning, 0.7,
                str("this process is bound to one of ", online, " CPUs, and so is all that it starts"),
                "Ranks, data loaders and communication threads would share it. Slurm: --cpus-per-task; mpirun "
                "--bind-to none; see taskset -cp $$");
  } else if (bound && nodes > 1) {
    add_finding(report, "cpu.bound", Severity::kInfo, 0.4,
                str("this process may use ", usable, " of ", online, " CPUs"),
                "Right below a batch system; the ranks inherit it. See taskset -cp $$ and numactl --show");
  }
}

}  // namespace trireme::doctor
