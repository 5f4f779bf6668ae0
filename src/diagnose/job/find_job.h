// A job of `trireme run` by its id: its run folder, and while it runs the processes of its ranks.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "profile/collective_trace.h"

namespace trireme::diagnose {

struct LiveRank {
  int pid = 0;
  char state = '?';  ///< of /proc/PID/stat: R running, S sleeping, D in the kernel, T stopped, t traced, Z ended
};

struct FoundJob {
  std::string run_dir;
  std::map<int, LiveRank> ranks;  ///< of a job that runs, by rank
  std::optional<int> world_size;  ///< of a job that runs
};

/// What became of the process that writes (or wrote) a trace: its state as in LiveRank, 'X' when it is gone, '?' when it is on another host, or the
/// writer has ended in order.
[[nodiscard]] char state_of_writer(const profile::TraceSnapshot& trace);

/// Looks for a process with TRIREME_JOB_ID=id (of this user, or any for root), then for a folder whose name ends with "-id" in `runs` of the
/// working folder and where `trireme run` puts it when that cannot be made.
///
/// id     12 hexadecimal digits, or its beginning where that means one job only
/// Errors kInvalidArgument  no such job, or several: names where it was looked for, or the jobs.
[[nodiscard]] FoundJob find_job(const std::string& id);

}  // namespace trireme::diagnose
