#include "profile/rank_report.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/log.h"
#include "base/str.h"
#include "trireme/base/error.h"

extern char** environ;

namespace trireme::profile {
namespace {

constexpr std::chrono::milliseconds kDefaultLimit{3000};
constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kLongestWait_ms = 2000;
constexpr size_t kStackBytes = size_t{64} << 10;

/// What the handlers need, ready before any signal comes: they may neither allocate nor lock.
struct Prepared {
  char program[PATH_MAX];  ///< empty: from inside
  char file[PATH_MAX];
  char rank[16];
  char pid[16];
  pid_t owner;
};
Prepared g_prepared;
std::atomic<bool> g_is_prepared{false};
std::atomic<bool> g_is_dying{false};

void pause_ms(int ms) {
  const timespec time = {ms / 1000, (ms % 1000) * 1'000'000L};
  nanosleep(&time, nullptr);
}

/// Starts trireme-stacks on this process; -1 when that cannot be. System calls only.
pid_t start_stacks() {
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // refused where nobody restricts it
  const pid_t child = _Fork();
  if (child != 0) return child;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  char* argv[] = {g_prepared.program, g_prepared.pid, g_prepared.file, g_prepared.rank, nullptr};
  execve(g_prepared.program, argv, environ);
  _exit(127);
}

void copy_own_status(int to) {
  const int from = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  char buffer[4096];
  const ssize_t got = from >= 0 ? read(from, buffer, sizeof(buffer)) : 0;
  if (got > 0 && write(to, buffer, static_cast<size_t>(got)) < 0) return;
  if (from >= 0) close(from);
}

void report_from_inside() {
  const int to = open(g_prepared.file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (to < 0) return;
  void* frames[64];
  const int count = backtrace(frames, 64);
  backtrace_symbols_fd(frames, count, to);
  copy_own_status(to);
  close(to);
}

void on_fatal(int signal, siginfo_t* info, void* /*context*/) {
  const int saved = errno;
  if (g_prepared.owner == getpid() && !g_is_dying.exchange(true)) {
    const pid_t child = g_prepared.program[0] != '\0' ? start_stacks() : -1;
    int status = -1;
    for (int waited = 0; child > 0 && waited < kLongestWait_ms; waited += 5) {
      const pid_t ended = waitpid(child, &status, WNOHANG);
      if (ended == child || (ended < 0 && errno == ECHILD)) break;
      pause_ms(5);
    }
    if (child > 0 && status == -1) kill(child, SIGKILL);
    if (child <= 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127)) report_from_inside();
  } else if (g_prepared.owner == getpid()) {
    pause_ms(kLongestWait_ms);  // another thread is at it, and ends all
  }
  ::signal(signal, SIG_DFL);
  // What the processor raised is raised again when we return; what was sent is not.
  if (info->si_code <= 0) raise(signal);
  errno = saved;
}

void on_request(int /*signal*/) {
  const int saved = errno;
  if (g_prepared.owner == getpid() && g_prepared.program[0] != '\0') {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    // Twice, so that nobody has to wait for the end of it.
    const pid_t middle = _Fork();
    if (middle == 0) {
      start_stacks();
      _exit(0);
    }
    if (middle > 0) waitpid(middle, nullptr, 0);
  } else if (g_prepared.owner == getpid()) {
    report_from_inside();
  }
  errno = saved;
}

bool copy_text(const std::string& text, char* place, size_t room) {
  if (text.size() + 1 > room) return false;
  std::memcpy(place, text.c_str(), text.size() + 1);
  return true;
}

/// A stack of its own for the handlers on this thread, for when its own is full. Never given back.
void give_handler_stack() {
  stack_t now{};
  if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
  stack_t stack{};
  stack.ss_sp = std::malloc(kStackBytes);
  stack.ss_size = kStackBytes;
  if (stack.ss_sp != nullptr) sigaltstack(&stack, nullptr);
}

bool has_default(int signal) {
  struct sigaction now{};
  return sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
}

int signal_of(const std::string& name) {
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = sigabbrev_np(signal);
    if (name == std::to_string(signal)) return signal;
    if (known != nullptr && (name == known || name == str("SIG", known))) return signal;
  }
  return 0;
}

void answer_requests() {
  const char* name = std::getenv("TRIREME_REPORT_SIGNAL");
  if (name == nullptr || *name == '\0') return;
  const int signal = signal_of(name);
  if (signal == 0 || signal == SIGKILL || signal == SIGSTOP) {
    throw Error(ErrorKind::kConfig, str("[profile.report] TRIREME_REPORT_SIGNAL is '", name,
                                        "'; a signal that can be caught is required, like USR1."));
  }
  if (!has_default(signal)) {
    log::warn("profile", "TRIREME_REPORT_SIGNAL is ", name,
              ", for which this program has a handler, or ignores it; that stays, and no report is written for it");
    return;
  }
  struct sigaction action{};
  action.sa_handler = on_request;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(signal, &action, nullptr);
}

}  // namespace

std::chrono::milliseconds hang_limit_from_environment() {
  const char* text = std::getenv("TRIREME_HANG_AFTER_S");
  if (text == nullptr || *text == '\0') return kDefaultLimit;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end != '\0' || !(seconds >= 0 && seconds <= 1e6)) {
    throw Error(ErrorKind::kConfig, str("[profile.watch] TRIREME_HANG_AFTER_S is '", text,
                                        "'; 0 (no watch) to 1000000 seconds are required."));
  }
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)));
}

bool is_watched() {
  const char* watcher = std::getenv("TRIREME_WATCHER");
  return watcher != nullptr && *watcher != '\0';
}

std::string find_stacks_program() {
  constexpr const char* kName = "trireme-stacks";
  std::array<char, PATH_MAX> self{};
  const ssize_t got = readlink("/proc/self/exe", self.data(), self.size() - 1);
  std::string own(self.data(), got > 0 ? static_cast<size_t>(got) : 0);
  own = own.substr(0, own.rfind('/') + 1) + kName;
  if (access(own.c_str(), X_OK) == 0) return own;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = str(folder.empty() ? "." : folder, "/", kName);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

void prepare_rank_reports(const std::string& run_dir, int rank) {
  if (const char* watcher = std::getenv("TRIREME_WATCHER"); watcher != nullptr && *watcher != '\0') {
    // What the launcher starts may look at us, where only parents may otherwise (Yama).
    prctl(PR_SET_PTRACER, std::strtoul(watcher, nullptr, 10), 0, 0, 0);
  }
  if (run_dir.empty() || g_is_prepared.exchange(true)) return;
  std::error_code ignored;
  std::filesystem::create_directories(run_dir + "/reports", ignored);
  // The launcher's is the one of the same build where the rank is a program somewhere else.
  const char* told = std::getenv("TRIREME_STACKS_PROGRAM");
  const bool good =
      copy_text(told != nullptr ? told : find_stacks_program(), g_prepared.program, sizeof(g_prepared.program)) &&
      copy_text(str(run_dir, "/reports/rank", rank, ".txt"), g_prepared.file, sizeof(g_prepared.file)) &&
      copy_text(std::to_string(rank), g_prepared.rank, sizeof(g_prepared.rank)) &&
      copy_text(std::to_string(getpid()), g_prepared.pid, sizeof(g_prepared.pid));
  if (!good) return;
  g_prepared.owner = getpid();
  void* frame = nullptr;
  (void)backtrace(&frame, 1);  // loads what it needs, which it must not do in a handler
  give_handler_stack();
  for (const int signal : kFatal) {
    if (!has_default(signal)) continue;
    struct sigaction action{};
    action.sa_sigaction = on_fatal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(signal, &action, nullptr);
  }
  answer_requests();
}

}  // namespace trireme::profile
