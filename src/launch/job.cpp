#include "launch/job.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/str.h"
#include "launch/failure_report.h"
#include "launch/rank_env.h"
#include "launch/supervisor.h"
#include "profile/rank_report.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/job_env.h"

namespace trireme::launch {
namespace {

constexpr int kMaxRanks = 4096;

void check(const JobSpec& spec) {
  const auto wrong = [](const std::string& what) { throw Error(ErrorKind::kConfig, "[launch.start] " + what); };
  if (spec.command.empty()) wrong("no program was given; at least its name is required.");
  if (spec.num_ranks < 1 || spec.num_ranks > kMaxRanks) {
    wrong(str("num_ranks is ", spec.num_ranks, "; 1 to ", kMaxRanks, " is required."));
  }
  if (spec.master_port < 0 || spec.master_port > 65535) wrong(str("port ", spec.master_port, " is not in 0..65535."));
  if (spec.max_restarts < 0) wrong(str("max_restarts is ", spec.max_restarts, "; 0 or more is required."));
  if (spec.grace.count() < 0 || spec.report_grace.count() < 0) wrong("a grace time is negative.");
}

/// Blocks the forwarded signals and lets them be read; ignores SIGPIPE, and SIGXFSZ (a log that has reached `ulimit -f` is an
/// error of write(), not the end of the job); undoes all at its end.
class SignalScope {
 public:
  explicit SignalScope(const std::vector<int>& forwarded) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : forwarded) {
      struct sigaction now{};
      sigaction(signal, nullptr, &now);
      // Ignored from outside (nohup): it stays ignored, for us and for the ranks.
      if (now.sa_handler != SIG_IGN) sigaddset(&set, signal);
    }
    pthread_sigmask(SIG_BLOCK, &set, &mask_before_);
    fd_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    struct sigaction ignore{};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &pipe_before_);
    sigaction(SIGXFSZ, &ignore, &file_size_before_);
  }
  ~SignalScope() {
    sigaction(SIGXFSZ, &file_size_before_, nullptr);
    sigaction(SIGPIPE, &pipe_before_, nullptr);
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool pipe_was_default() const { return pipe_before_.sa_handler != SIG_IGN; }
  [[nodiscard]] bool file_size_was_default() const { return file_size_before_.sa_handler != SIG_IGN; }

 private:
  Fd fd_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_{};
  struct sigaction file_size_before_{};
};

/// Pipes and log files of many ranks pass the usual 1024 descriptors. Undone at its end; the ranks get the old limit.
class FileLimitScope {
 public:
  explicit FileLimitScope(int num_ranks) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit wanted = before_;
    wanted.rlim_cur = std::min<rlim_t>(before_.rlim_max, 64 + 8 * static_cast<rlim_t>(num_ranks));
    if (wanted.rlim_cur > before_.rlim_cur) setrlimit(RLIMIT_NOFILE, &wanted);
  }
  ~FileLimitScope() { setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimitScope(const FileLimitScope&) = delete;
  FileLimitScope& operator=(const FileLimitScope&) = delete;
  [[nodiscard]] const rlimit& before() const { return before_; }

 private:
  rlimit before_{};
};

int exit_code_of(const RankEnd& end) { return end.signal != 0 ? 128 + end.signal : end.exit_code; }

int exit_code_of(const JobResult& result) {
  if (result.first) return exit_code_of(*result.first);
  if (result.interrupted_by == 0) return 0;
  if (result.ends.empty()) return 128 + result.interrupted_by;
  // A rank that saved its state on SIGTERM and ended by itself decides; one that had to be killed does not.
  for (const RankEnd& end : result.ends) {
    if (end.signal == SIGKILL) return 128 + result.interrupted_by;
  }
  for (const RankEnd& end : result.ends) {
    if (end.failed()) return exit_code_of(end);
  }
  return 0;
}

/// A pipe or log that got the number of a closed standard stream would be taken for it: by ranks, which then lose the
/// stream, and by us, who would write messages into it.
void fill_standard_streams() {
  while (true) {
    const int fd = open("/dev/null", O_RDWR);
    if (fd < 0) return;
    if (fd > STDERR_FILENO) {
      close(fd);
      return;
    }
  }
}

/// Writes out what is queued, as long as somebody reads it: whoever told the job to end, then or now, is not to wait for a
/// reader that has stopped. The log files have it all.
void finish_console(Console& console, int signal_fd, const JobSpec& spec, const JobResult& result) {
  using std::chrono::milliseconds;
  constexpr milliseconds kForWriting{1000};
  const milliseconds limit = result.interrupted_by != 0 ? std::max(spec.grace, kForWriting) : milliseconds(-1);
  while (!console.finish(signal_fd, limit)) {
    signalfd_siginfo info{};
    const bool told = read(signal_fd, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info));
    if (told && (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2)) continue;
    return console.drop();
  }
}

}  // namespace

JobResult run_job(const JobSpec& spec) {
  check(spec);
  fill_standard_streams();
  const std::string executable = spec.executable.empty() ? find_program(spec.command.front()) : spec.executable;
  const std::chrono::milliseconds hang_after =
      spec.hang_after ? *spec.hang_after : profile::hang_limit_from_environment();
  const profile::StragglerOptions slow = profile::straggler_options_from_environment();
  JobResult result;
  Attempt attempt;
  attempt.job_id = result.job_id = new_job_id();
  attempt.run_dir = result.run_dir = make_run_dir(spec, attempt.job_id);
  make_log_dir(attempt.run_dir, spec.num_ranks);
  std::string hint;
  {
    const SignalScope signals(spec.forwarded_signals);
    const FileLimitScope files(spec.num_ranks);
    const Fd room(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    Console console(room.get());
    const Inherited inherited{signals.pipe_was_default(), signals.file_size_was_default(), files.before()};
    const SupervisorContext context{
        spec,      executable,       console,    room.get(), signals.fd(),
        inherited, read_oom_kills(), hang_after, slow,       profile::find_stacks_program()};
    while (true) {
      Supervisor supervisor(context, attempt, result);
      supervisor.run();
      hint = supervisor.hint();
      const std::string others = others_line(result);
      if (!others.empty()) console.write(2, others);
      if (!result.first || result.interrupted_by != 0 || attempt.number >= spec.max_restarts) break;
      result.restarts = ++attempt.number;
      console.write(2, str("[launch] restart ", attempt.number, " of ", spec.max_restarts, ": all ", spec.num_ranks,
                           " ranks start again.\n"));
    }
    result.exit_code = exit_code_of(result);
    if (result.first || result.interrupted_by != 0) write_failure_json(spec, result, hint);
    finish_console(console, signals.fd(), spec, result);
  }
  return result;
}

std::vector<PlannedRank> plan_job(const JobSpec& spec) {
  check(spec);
  Attempt attempt;
  attempt.job_id = "<job id>";
  attempt.port = spec.master_port != 0 ? std::to_string(spec.master_port) : "<port>";
  attempt.run_dir =
      !spec.run_dir.empty() ? spec.run_dir : str(spec.log_dir.empty() ? "runs" : spec.log_dir, "/<date>-<job id>");
  std::vector<PlannedRank> ranks;
  for (int rank = 0; rank < spec.num_ranks; ++rank) {
    PlannedRank planned;
    planned.rank = rank;
    planned.executable = spec.executable.empty() ? find_program(spec.command.front()) : spec.executable;
    planned.command = spec.command;
    planned.env = rank_variables(spec, attempt, rank);
    ranks.push_back(std::move(planned));
  }
  return ranks;
}

std::optional<JobResult> run_self_as_ranks(int argc, char** argv, JobSpec spec) {
  if (rendezvous::detect_job_env().source != "none" || spec.num_ranks == 1) return std::nullopt;
  spec.command.assign(argv, argv + argc);
  // Still the right file after it was rebuilt, moved, or started through PATH.
  spec.executable = "/proc/self/exe";
  return run_job(spec);
}

std::optional<int> run_self_as_ranks(int argc, char** argv, const SelfOptions& options) {
  JobSpec spec;
  spec.num_ranks = options.num_ranks;
  spec.run_dir = options.run_dir;
  spec.env = options.env;
  if (options.raw_rank0) spec.out[0] = spec.err[0] = Show::kRaw;
  const auto result = run_self_as_ranks(argc, argv, spec);
  if (!result) return std::nullopt;
  return result->exit_code;
}

}  // namespace trireme::launch
