// Starting ranks on this host: what `trireme run` does, as a library.
//
// A program that starts its own ranks needs two lines at the top of main():
//
//     launch::SelfOptions options;                  // options.num_ranks = what the user asked for
//     if (const auto code = launch::run_self_as_ranks(argc, argv, options)) return *code;
//     // from here on this process is a rank: trireme::init() finds its environment
//
// It starts num_ranks copies of the running executable with the same arguments and waits for them. In those copies, in
// ranks of any other launcher (torchrun, mpirun, srun, trireme run), and when one rank is asked for, it returns nothing
// and the program goes on as a rank. Call it before the first thread is started and before LibTorch is used.
//
// Processes: the caller -> a guardian (forked, never more than this file's code) -> the ranks, each in a session of its
// own. The guardian adopts every orphan below it, so that it can end ALL descendants, and does so when the caller is
// gone, however that happened (docs/cli.md, "What happens to the processes").
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

/// What goes to the console from one stream of one rank; the log files get everything in each case.
enum class Show {
  kLines,  ///< whole lines with "[rankN]: " in front
  kRaw,    ///< the bytes as they come (progress bars of rank 0)
  kNone,
};

struct JobSpec {
  std::vector<std::string> command;  ///< program and arguments; a name without '/' is looked for in PATH
  std::string executable;            ///< what is executed in place of command[0], which stays argv[0]; empty: none
  int num_ranks = 1;                 ///< on this host
  std::map<std::string, std::string> env;  ///< added to the inherited environment; an empty value removes

  std::string run_dir;  ///< folder for logs and reports; empty: <log_dir>/<date>-<job id>
  std::string log_dir;  ///< empty: "runs", or a folder in /tmp (with a warning) where that cannot be made
  std::string run_id;   ///< TORCHELASTIC_RUN_ID; empty: the job id
  std::string role = "default";
  std::string master_addr = "127.0.0.1";  ///< where the store listens
  int master_port = 0;                    ///< 0: the kernel picks a free one
  int max_restarts = 0;                   ///< all ranks start again after a failure

  /// From the first failure to SIGTERM for the others: time for them to notice and to say so.
  std::chrono::milliseconds report_grace{1500};
  /// From SIGTERM (or a forwarded Ctrl-C) to SIGKILL. Raise it where ranks save their state on SIGTERM.
  std::chrono::milliseconds grace{5000};
  /// A call of communication that waits longer for a rank is told as a hang; 0: none is. Empty: TRIREME_HANG_AFTER_S, else 3 s.
  std::optional<std::chrono::milliseconds> hang_after;
  std::vector<int> forwarded_signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

  std::map<int, Show> out;  ///< standard output by rank; those not named: kLines
  std::map<int, Show> err;  ///< standard error by rank; those not named: kLines
  bool announce = true;     ///< one line on stderr about job, folder and store
};

/// How one rank ended.
struct RankEnd {
  int rank = 0;
  pid_t pid = 0;
  int exit_code = 0;         ///< when signal is 0
  int signal = 0;            ///< what killed it
  bool by_launcher = false;  ///< we sent that signal, or it ended after we had sent one
  double after_s = 0;        ///< seconds since the start
  int64_t unix_ns = 0;       ///< wall clock
  [[nodiscard]] bool failed() const { return signal != 0 || exit_code != 0; }
};

struct JobResult {
  int exit_code = 0;  ///< the root cause's own; 128 + signal when it was killed, or 128 + Ctrl-C's
  std::string job_id;
  std::string run_dir;
  int restarts = 0;
  int interrupted_by = 0;        ///< the signal that the launcher got and passed on
  std::optional<RankEnd> first;  ///< the root cause, of the last attempt
  std::string first_log;  ///< where its words are, below run_dir: "logs/rank1.err", else .out; empty: it wrote nothing
  std::vector<std::string> explanations;  ///< of the last attempt: what the ranks' traces say about the cause, in lines
  std::vector<RankEnd> ends;              ///< all ranks of the last attempt, in the order of their ends
};

/// Starts the ranks, serves their store, relays their output, and returns when no process of the job is left. [blocking]
///
/// Reports  the first failure on stderr at once, under rendezvous::kDeathNoticeKey in the store, and in
///          <run_dir>/failure.json; then a line about the others.
/// Errors   kConfig when the program cannot be found or the spec is wrong, kIo when the folder or the port cannot be
///          had: all before anything is started.
/// Threads  call it from the thread that will outlive the job, best before other threads exist: it forks.
[[nodiscard]] JobResult run_job(const JobSpec& spec);

/// One rank as it would be started.
struct PlannedRank {
  int rank = 0;
  std::string executable;  ///< as found in PATH
  std::vector<std::string> command;
  std::map<std::string, std::string> env;  ///< what is added to or changed in the inherited environment
};
/// What run_job would start; port and job id are shown as given, or as "<port>" and "<job id>". Starts nothing.
[[nodiscard]] std::vector<PlannedRank> plan_job(const JobSpec& spec);

struct SelfOptions {
  int num_ranks = 1;
  std::string run_dir;    ///< empty: as JobSpec
  bool raw_rank0 = true;  ///< rank 0's output is shown as it comes, the other ranks' as prefixed lines
  std::map<std::string, std::string> env;
};
/// See above. Returns the exit code for main(), or nothing where this process is to go on as a rank.
[[nodiscard]] std::optional<int> run_self_as_ranks(int argc, char** argv, const SelfOptions& options);

/// Full form of the above; spec.command and spec.executable are filled in from argv.
[[nodiscard]] std::optional<JobResult> run_self_as_ranks(int argc, char** argv, JobSpec spec);

}  // namespace trireme::launch
