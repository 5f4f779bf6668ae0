// The launcher's words about how ranks ended, for people and (failure.json) for programs.
#pragma once

#include <string>
#include <vector>

#include "launch/job.h"

namespace trireme::launch {

/// "SIGKILL"; "signal 61" for those without a name.
[[nodiscard]] std::string signal_name(int signal);

/// The signal of a name ("SIGUSR1", "USR1") or number; 0 when there is none.
[[nodiscard]] int signal_number(const std::string& name);

/// Counters of kernel OOM kills of this process's memory cgroup, taken before and after.
[[nodiscard]] long long read_oom_kills();

/// Why a rank may have got SIGKILL that we did not send: looks at the cgroup and, where allowed, the kernel log.
[[nodiscard]] std::string sigkill_hint(pid_t pid, long long oom_kills_at_start);

/// "rank 1 on HOST, pid 4121, SIGKILL (hint), after 3 s"
[[nodiscard]] std::string describe(const RankEnd& end, const std::string& hint);

/// "[launch] FAILED, 1 of 4 ranks. First, 14:02:11: rank 1 on ..., after 3 s; see runs/x/logs/rank1.err."
/// `log` is JobResult::first_log.
[[nodiscard]] std::string first_failure_line(const RankEnd& first, const std::string& hint, int num_ranks,
                                             const std::string& run_dir, const std::string& log);

/// "[launch] Then, after rank 1: ranks 0, 2 exit code 5; rank 3 ended by the launcher (SIGTERM)."; empty for none.
[[nodiscard]] std::string others_line(const JobResult& result);

/// Writes <run_dir>/failure.json; a failure to write is only logged.
void write_failure_json(const JobSpec& spec, const JobResult& result, const std::string& hint);

/// A path for messages: relative to the working folder when it lies below.
[[nodiscard]] std::string short_path(const std::string& path);

[[nodiscard]] std::string host_name();

}  // namespace trireme::launch
