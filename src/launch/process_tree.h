// Who descends from whom, read from /proc, and signals that reach exactly the process that was meant.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace trireme::launch {

struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
  unsigned long flags = 0;             ///< the kernel's PF_ flags
  unsigned long long start_ticks = 0;  ///< with the pid names a process for good
  std::string name;
};

/// One process; pid 0 when there is none.
[[nodiscard]] ProcessInfo read_process(pid_t pid);

/// Whether a process is being torn down, or gone: dead for all purposes, though its parent may not know yet.
[[nodiscard]] bool is_exiting(pid_t pid);

/// All living descendants of `root`, without itself. Zombies are left out: nothing can or need be done to them.
[[nodiscard]] std::vector<ProcessInfo> descendants(pid_t root);

/// Sends `signal` through a pidfd after checking that the number still means the same process. False: it is gone, or
/// not ours to signal.
bool signal_exactly(const ProcessInfo& process, int signal);

struct EnvScan {
  std::vector<ProcessInfo> found;
  /// Nobody of this user died between being listed and being looked at. Only then does an empty `found` mean that there is none: who died
  /// meanwhile may have been one of them, and may have forked after the list was made.
  bool complete = true;
};
/// Living processes of this user whose environment at exec had `assignment` ("NAME=value"), without this one.
[[nodiscard]] EnvScan processes_with_env(const std::string& assignment);

}  // namespace trireme::launch
