#include "launch/guardian.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <system_error>

#include "base/str.h"
#include "launch/process_tree.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

int64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// The arrays that execve wants, made before the fork so that the child allocates nothing.
struct ExecArrays {
  explicit ExecArrays(const RankStart& rank) {
    for (const std::string& word : rank.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    for (const std::string& word : rank.env) envp.push_back(const_cast<char*>(word.c_str()));
    envp.push_back(nullptr);
    // For a script without "#!": the shell runs it, as execvp does.
    shell_argv = {const_cast<char*>("/bin/sh"), const_cast<char*>(rank.executable.c_str())};
    shell_argv.insert(shell_argv.end(), argv.begin() + 1, argv.end());
  }
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::vector<char*> shell_argv;
};

/// The child's half of vfork: shares our memory until exec, so it only makes system calls. What keeps it from executing
/// goes into `failure`, which exec closes.
[[noreturn]] void become_rank(const RankStart& rank, const ExecArrays& arrays, pid_t guardian,
                              const Inherited& inherited, int failure) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guardian) _exit(127);  // it died before the line above took effect
  if (inherited.sigpipe_default) signal(SIGPIPE, SIG_DFL);
  if (inherited.sigxfsz_default) signal(SIGXFSZ, SIG_DFL);
  setrlimit(RLIMIT_NOFILE, &inherited.num_files);
  dup2(rank.in_fd, STDIN_FILENO);
  dup2(rank.out_fd, STDOUT_FILENO);
  dup2(rank.err_fd, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(rank.executable.c_str(), arrays.argv.data(), arrays.envp.data());
  if (errno == ENOEXEC) execve("/bin/sh", arrays.shell_argv.data(), arrays.envp.data());
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = write(failure, &reason, sizeof(reason));
  _exit(127);
}

class GuardianLoop {
 public:
  GuardianLoop(const std::vector<RankStart>& ranks, const std::vector<ExecArrays>& arrays, int notices, int orders,
               int launcher, const Inherited& inherited)
      : ranks_(ranks),
        arrays_(arrays),
        notices_(notices),
        orders_(orders),
        launcher_(launcher),
        inherited_(inherited) {}

  void run() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    const int child_signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    start_ranks();
    shut_descriptors(child_signals);
    watch(orders_, kOrders);
    watch(launcher_, kLauncher);
    watch(child_signals, kChildren);
    child_signals_ = child_signals;
    while (!finished()) wait_once();
    send({});  // kAllGone
  }

 private:
  enum Tag : uint64_t { kOrders, kLauncher, kChildren, kFirstRank };
  struct Rank {
    pid_t pid = 0;
    int pidfd = -1;
    bool living = false;
  };

  void send(Notice notice) const {
    notice.monotonic_ns = now_ns(CLOCK_MONOTONIC);
    notice.unix_ns = now_ns(CLOCK_REALTIME);
    [[maybe_unused]] const ssize_t written = write(notices_, &notice, sizeof(notice));
  }

  void watch(int fd, uint64_t tag) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void start_ranks() {
    const pid_t self = getpid();
    living_.resize(ranks_.size());
    for (size_t i = 0; i < ranks_.size(); ++i) {
      int failure[2] = {-1, -1};
      int reason = pipe2(failure, O_CLOEXEC) == 0 ? 0 : errno;
      // posix_spawn cannot set a parent-death signal. The child makes system calls only, and we wait for nothing that it
      // could withhold: exec or _exit follow at once.
      // NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork,bugprone-unsafe-functions)
      const pid_t pid = reason == 0 ? vfork() : -1;
      // NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork,bugprone-unsafe-functions)
      if (pid == 0) become_rank(ranks_[i], arrays_[i], self, inherited_, failure[1]);
      if (pid < 0 && reason == 0) reason = errno;
      close(failure[1]);
      // Ends when the rank has executed its program; vfork has waited for that already, a sanitizer's vfork has not.
      if (pid > 0 && read(failure[0], &reason, sizeof(reason)) <= 0) reason = 0;
      close(failure[0]);
      Notice notice;
      notice.rank = static_cast<int32_t>(i);
      notice.pid = pid;
      if (reason != 0) {
        notice.kind = Notice::Kind::kCannotExec;
        notice.value = reason;
        if (pid > 0) waitpid(pid, nullptr, 0);
        send(notice);
        kill_everything_ = true;
        return;
      }
      const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
      if (pidfd < 0) {
        // Its end would never be seen, and the job would not end.
        notice.kind = Notice::Kind::kCannotExec;
        notice.value = errno;
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        send(notice);
        kill_everything_ = true;
        return;
      }
      living_[i] = {pid, pidfd, true};
      ++num_living_;
      watch(living_[i].pidfd, kFirstRank + i);
      notice.kind = Notice::Kind::kStarted;
      send(notice);
    }
  }

  /// Pipes of the ranks must end when the ranks do, and nothing of the launcher's may be kept alive from here.
  void shut_descriptors(int child_signals) const {
    std::vector<int> keep{notices_, orders_, launcher_, epoll_, child_signals};
    for (const Rank& rank : living_) keep.push_back(rank.pidfd);
    std::sort(keep.begin(), keep.end());
    int next = 0;
    for (const int fd : keep) {
      if (fd > next) close_range(static_cast<unsigned>(next), static_cast<unsigned>(fd - 1), 0);
      next = std::max(next, fd + 1);
    }
    close_range(static_cast<unsigned>(next), ~0U, 0);
    for (int fd = 0; fd < 3; ++fd) {
      if (std::find(keep.begin(), keep.end(), fd) != keep.end()) continue;
      const int null = open("/dev/null", O_RDWR);
      if (null != fd && null >= 0) {
        dup2(null, fd);
        close(null);
      }
    }
  }

  bool finished() {
    if (num_living_ > 0) return false;
    reap_orphans();
    siginfo_t info{};
    // Every descendant becomes our child once its parent is gone, so "no child" means "no descendant".
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return true;
    end_strays();
    return false;
  }

  void wait_once() {
    epoll_event events[32];
    // While there is something to kill, new children may appear at any time: look again soon.
    const int timeout = kill_everything_ ? 20 : (num_living_ == 0 ? 50 : -1);
    const int count = epoll_wait(epoll_, events, 32, timeout);
    // Events of pidfds come in the order of the deaths: that is how the first one is known.
    for (int i = 0; i < count; ++i) handle(events[i].data.u64);
    reap_orphans();
    if (kill_everything_) kill_all();
  }

  void handle(uint64_t tag) {
    if (tag == kOrders) {
      take_order();
    } else if (tag == kLauncher) {
      kill_everything_ = true;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, launcher_, nullptr);
    } else if (tag == kChildren) {
      signalfd_siginfo ignored{};
      while (read(child_signals_, &ignored, sizeof(ignored)) > 0) {
      }
    } else {
      rank_ended(static_cast<size_t>(tag - kFirstRank));
    }
  }

  void take_order() {
    Order order;
    const ssize_t got = read(orders_, &order, sizeof(order));
    if (got != static_cast<ssize_t>(sizeof(order))) {
      if (got < 0 && errno == EINTR) return;
      kill_everything_ = true;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, orders_, nullptr);
      return;
    }
    if (order.kind == Order::Kind::kKillAll) {
      kill_everything_ = true;
      return;
    }
    for (const Rank& rank : living_) {
      // Not reaped yet, so the number cannot mean anybody else.
      if (rank.living) kill(-rank.pid, order.value);
    }
  }

  void rank_ended(size_t index) {
    Rank& rank = living_[index];
    siginfo_t info{};
    if (!rank.living || waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
      return;
    }
    rank.living = false;
    --num_living_;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, rank.pidfd, nullptr);
    close(rank.pidfd);
    Notice notice;
    notice.kind = Notice::Kind::kEnded;
    notice.rank = static_cast<int32_t>(index);
    notice.pid = rank.pid;
    notice.killed = info.si_code == CLD_EXITED ? 0 : 1;
    notice.value = info.si_status;
    send(notice);
  }

  bool is_living_rank(pid_t pid) const {
    return std::any_of(living_.begin(), living_.end(), [pid](const Rank& r) { return r.living && r.pid == pid; });
  }

  void reap_orphans() const {
    while (true) {
      siginfo_t info{};
      if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      if (is_living_rank(info.si_pid)) return;  // its pidfd reports it, in order; then we come here again
      waitpid(info.si_pid, nullptr, 0);
    }
  }

  void kill_all() const {
    for (const Rank& rank : living_) {
      if (rank.living) kill(-rank.pid, SIGKILL);
    }
    for (const ProcessInfo& process : descendants(getpid())) signal_exactly(process, SIGKILL);
  }

  /// All ranks are done; what they left running gets SIGTERM, a moment, and SIGKILL.
  void end_strays() {
    const int64_t now = now_ns(CLOCK_MONOTONIC);
    if (strays_since_ns_ == 0) strays_since_ns_ = now;
    if (now - strays_since_ns_ > int64_t{kStrayGraceMs} * 1'000'000) kill_everything_ = true;
    for (const ProcessInfo& process : descendants(getpid())) {
      const bool told = std::find(told_.begin(), told_.end(), process.pid) != told_.end();
      if (told) continue;
      told_.push_back(process.pid);
      signal_exactly(process, SIGTERM);
      if (kill_everything_) continue;
      Notice notice;
      notice.kind = Notice::Kind::kStray;
      notice.pid = process.pid;
      std::strncpy(notice.name, process.name.c_str(), sizeof(notice.name) - 1);
      send(notice);
    }
  }

  const std::vector<RankStart>& ranks_;
  const std::vector<ExecArrays>& arrays_;
  int notices_;
  int orders_;
  int launcher_;
  const Inherited& inherited_;
  int epoll_ = -1;
  int child_signals_ = -1;
  std::vector<Rank> living_;
  size_t num_living_ = 0;
  bool kill_everything_ = false;
  int64_t strays_since_ns_ = 0;
  std::vector<pid_t> told_;
};

}  // namespace

Guardian start_guardian(const std::vector<RankStart>& ranks, const Inherited& inherited) {
  std::vector<ExecArrays> arrays;
  arrays.reserve(ranks.size());
  for (const RankStart& rank : ranks) arrays.emplace_back(rank);
  int notices[2] = {-1, -1};
  int orders[2] = {-1, -1};
  const int launcher = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (launcher < 0 && errno != EMFILE && errno != ENFILE) {
    throw Error(ErrorKind::kUnavailable, str("[launch.start] the system call pidfd_open is refused here: ",
                                             std::system_category().message(errno),
                                             "; Linux 5.3 and a container that lets it pass are required."));
  }
  if (launcher < 0 || pipe2(notices, O_CLOEXEC) != 0 || pipe2(orders, O_CLOEXEC) != 0) {
    const int reason = errno;
    for (const int fd : {launcher, notices[0], notices[1]}) {
      if (fd >= 0) close(fd);
    }
    throw Error(ErrorKind::kIo,
                str("[launch.start] cannot make pipes for the guardian process: ",
                    std::system_category().message(reason), ". Raise RLIMIT_NOFILE, or end other programs."));
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) {
    // All signals stay blocked: a Ctrl-C or a SIGTERM is the launcher's business, and only SIGKILL ends a guardian.
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "trireme-guard");
    signal(SIGCHLD, SIG_DFL);  // an inherited "ignore" would reap the ranks unseen
    close(notices[0]);
    close(orders[1]);
    GuardianLoop(ranks, arrays, notices[1], orders[0], launcher, inherited).run();
    _exit(0);
  }
  const int fork_errno = errno;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  close(launcher);
  close(notices[1]);
  close(orders[0]);
  if (pid < 0) {
    close(notices[0]);
    close(orders[1]);
    throw Error(ErrorKind::kIo, str("[launch.start] cannot fork the guardian process: ",
                                    std::system_category().message(fork_errno), ". Raise RLIMIT_NPROC."));
  }
  return {pid, notices[0], orders[1]};
}

}  // namespace trireme::launch
