#include "launch/process_look.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>
#include <string_view>

#include "base/fd.h"
#include "base/str.h"
#include "launch/process_tree.h"

extern char** environ;

namespace trireme::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostText = size_t{1} << 20;

/// What functions of the C library say about their caller. The first one in the stack counts.
struct Meaning {
  std::string_view function;
  const char* words;
};
constexpr std::array<Meaning, 23> kMeanings = {{{"nanosleep", "sleeps"},
                                                {"pthread_mutex_lock", "waits for a mutex"},
                                                {"pthread_mutex_clocklock", "waits for a mutex"},
                                                {"pthread_rwlock", "waits for a lock"},
                                                {"pthread_cond_", "waits for a condition variable"},
                                                {"pthread_join", "waits for a thread to end"},
                                                {"sem_wait", "waits for a semaphore"},
                                                {"wait4", "waits for a child process"},
                                                {"waitid", "waits for a child process"},
                                                {"fsync", "waits for the disk"},
                                                {"fdatasync", "waits for the disk"},
                                                {"poll", "waits for a file or socket"},
                                                {"select", "waits for a file or socket"},
                                                {"epoll_wait", "waits for a file or socket"},
                                                {"recv", "reads from a socket"},
                                                {"send", "writes to a socket"},
                                                {"accept", "waits for a connection"},
                                                {"connect", "connects to another host"},
                                                {"read", "reads a file or pipe"},
                                                {"write", "writes a file or pipe"},
                                                {"pause", "waits for a signal"},
                                                {"sigsuspend", "waits for a signal"},
                                                {"malloc", "allocates memory"}}};

bool is_system(const std::string& module) {
  return module.starts_with("libc.so") || module.starts_with("libc-") || module.starts_with("ld-linux") ||
         module.starts_with("libpthread") || module.starts_with("libstdc++") || module.starts_with("libgcc_s") ||
         module.starts_with("libtsan") || module.starts_with("libasan") || module.starts_with("[vdso");
}

/// Nobody looks for a name by these words.
std::string without_anonymous(std::string function) {
  constexpr std::string_view kWords = "(anonymous namespace)::";
  for (size_t at; (at = function.find(kWords)) != std::string::npos;) function.erase(at, kWords.size());
  return function;
}

/// "load_batch(std::vector<int> const&, int)" is told as "load_batch".
std::string short_name(const std::string& full) {
  std::string function = without_anonymous(full);
  int depth = 0;
  for (size_t i = 0; i < function.size(); ++i) {
    if (function[i] == '<') ++depth;
    if (function[i] == '>') --depth;
    if (function[i] != '(' || depth > 0 || i == 0) continue;
    if (i >= 8 && function.compare(i - 8, 8, "operator") == 0) continue;
    return function.substr(0, i);
  }
  return function;
}

/// What the program writes until it ends or the time is over; then it is killed. Its words on stderr come last.
std::string run_until(const std::vector<std::string>& command, Clock::time_point deadline, std::string& problem) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    problem = std::strerror(errno);
    return {};
  }
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  writer.reset();
  if (error != 0) {
    problem = str("cannot run ", command[0], ": ", std::strerror(error));
    return {};
  }
  std::string text;
  bool ended = false;
  while (!ended && text.size() < kMostText) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry = {.fd = reader.get(), .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) == 0) break;
    std::array<char, 16384> buffer;
    const ssize_t got = read(reader.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    ended = got <= 0;
    if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
  }
  if (!ended) {
    problem = "the time for it was over";
    kill(child, SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 127) problem = text.substr(0, text.find('\n'));
  return text;
}

}  // namespace

MemoryUse read_memory_use(pid_t pid) {
  MemoryUse use;
  std::ifstream status(str("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    double* place = line.starts_with("VmRSS:") ? &use.now_mb : line.starts_with("VmHWM:") ? &use.most_mb : nullptr;
    if (place != nullptr) *place = std::strtod(line.c_str() + 6, nullptr) * 1024e-6;
  }
  return use;
}

std::vector<ThreadLook> parse_stacks(const std::string& text) {
  std::vector<ThreadLook> threads;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "thread") {
      ThreadLook thread;
      if (!(words >> thread.tid >> thread.state >> thread.name)) continue;
      words >> thread.kernel_wait;
      if (thread.kernel_wait == "-") thread.kernel_wait.clear();
      threads.push_back(std::move(thread));
    } else if (first.starts_with('#') && !threads.empty()) {
      // "#1 load_batch(std::string const&, int) train loader.cpp:41": the function may hold spaces, what follows it does not.
      std::string rest;
      std::getline(words >> std::ws, rest);
      StackFrame frame;
      size_t last = rest.rfind(' ');
      if (last == std::string::npos) continue;
      const std::string tail = rest.substr(last + 1);
      const size_t colon = tail.rfind(':');
      if (colon != std::string::npos && colon + 1 < tail.size() &&
          tail.find_first_not_of("0123456789", colon + 1) == std::string::npos) {
        frame.source = tail;
        rest.resize(last);
        last = rest.rfind(' ');
        if (last == std::string::npos) continue;
      }
      frame.module = rest.substr(last + 1);
      frame.function = rest.substr(0, last);
      threads.back().frames.push_back(std::move(frame));
    }
  }
  return threads;
}

ProcessLook look_at_process(pid_t pid, const std::string& stacks_program, std::chrono::milliseconds limit) {
  ProcessLook look;
  look.pid = pid;
  const ProcessInfo process = read_process(pid);
  if (process.pid == 0) return look;
  look.state = process.state;
  look.memory = read_memory_use(pid);
  if (look.gone()) return look;
  if (stacks_program.empty()) {
    look.problem = "trireme-stacks was not found beside this program or in PATH";
    return look;
  }
  look.text = run_until({stacks_program, std::to_string(pid)}, Clock::now() + limit, look.problem);
  look.threads = parse_stacks(look.text);
  const bool any =
      std::any_of(look.threads.begin(), look.threads.end(), [](const auto& t) { return !t.frames.empty(); });
  const size_t said = look.text.find("[stacks] ");
  if (!any && look.problem.empty()) {
    look.problem = said != std::string::npos ? look.text.substr(said + 9, look.text.find('\n', said) - said - 9)
                                             : "trireme-stacks said nothing";
  }
  return look;
}

bool ProcessLook::main_thread_communicates() const {
  if (threads.empty()) return false;
  return std::any_of(threads[0].frames.begin(), threads[0].frames.end(), [](const StackFrame& frame) {
    return frame.function.find("trireme::comm::") != std::string::npos;
  });
}

std::string ProcessLook::words() const {
  if (gone()) return "has ended";
  if (threads.empty() || threads[0].frames.empty()) {
    const char* doing = state == 'R' ? "runs" : state == 'D' ? "waits for a device (state D)" : "waits";
    return str(doing, " in its own code (no stack: ", problem.empty() ? "none was found" : problem, ")");
  }
  const std::vector<StackFrame>& frames = threads[0].frames;
  std::string doing = threads[0].state == 'R' ? "computes" : "waits";
  std::string by;
  size_t at = 0;
  for (; at < frames.size() && is_system(frames[at].module); ++at) {
    const auto meaning = std::find_if(kMeanings.begin(), kMeanings.end(), [&](const Meaning& m) {
      return frames[at].function.find(m.function) != std::string::npos;
    });
    if (!by.empty() || meaning == kMeanings.end()) continue;
    doing = meaning->words;
    by = short_name(frames[at].function);
  }
  std::string text = by.empty() ? doing : str(doing, " (", by, ")");
  std::vector<std::string> callers;
  for (bool first = true; at < frames.size() && callers.size() < 4; ++at) {
    const std::string& function = frames[at].function;
    if (function == "?" || function == "_start" || is_system(frames[at].module)) continue;
    if (first) {
      text += str(" in ", short_name(function), frames[at].source.empty() ? "" : " at ", frames[at].source);
      first = false;
    } else {
      callers.push_back(short_name(function));
    }
  }
  if (!callers.empty()) text += str(", called by ", join(callers));
  return text;
}

}  // namespace trireme::launch
