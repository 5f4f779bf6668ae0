#include "support/subprocess.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

extern char** environ;

namespace trireme::testing {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

namespace {

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

}  // namespace

Subprocess::Subprocess(const std::vector<std::string>& command, const Options& options)
    : read_stdout_(options.read_stdout) {
  std::vector<std::string> env;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (!options.env.contains(name)) env.emplace_back(*entry);
  }
  for (const auto& [name, value] : options.env) env.push_back(name + "=" + value);
  std::vector<char*> envp;
  for (std::string& entry : env) envp.push_back(entry.data());
  envp.push_back(nullptr);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  pid_ = fork();
  if (pid_ == 0) {
    if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(126);
    dup2(out[1], 1);
    dup2(err[1], 2);
    execvpe(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  pipes_[0] = out[0];
  pipes_[1] = err[0];
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
}

Subprocess::~Subprocess() {
  if (!ended_) {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {pipes_[0], pipes_[1], pidfd_}) {
    if (fd >= 0) close(fd);
  }
}

/// False when both streams have ended or the deadline has passed.
bool Subprocess::read_some(Clock::time_point deadline) {
  pollfd items[2] = {{read_stdout_ ? pipes_[0] : -1, POLLIN, 0}, {pipes_[1], POLLIN, 0}};
  if ((items[0].fd < 0 && items[1].fd < 0) || poll(items, 2, left_ms(deadline)) <= 0) return false;
  for (int i = 0; i < 2; ++i) {
    if (items[i].fd < 0 || items[i].revents == 0) continue;
    char buffer[65536];
    const ssize_t got = read(pipes_[i], buffer, sizeof(buffer));
    if (got > 0) {
      text_[i].append(buffer, static_cast<size_t>(got));
    } else {
      close(pipes_[i]);
      pipes_[i] = -1;
    }
  }
  return true;
}

bool Subprocess::await_output(const std::string& text, int times, Milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  const auto count = [&text](const std::string& in) {
    int found = 0;
    for (size_t at = in.find(text); at != std::string::npos; at = in.find(text, at + text.size())) ++found;
    return found;
  };
  while (count(text_[0]) + count(text_[1]) < times) {
    if (!read_some(deadline)) return false;
  }
  return true;
}

int Subprocess::wait(Milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (read_some(deadline)) {
  }
  pollfd item{pidfd_, POLLIN, 0};
  const bool in_time = poll(&item, 1, left_ms(deadline)) > 0;
  if (!in_time) ::kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  ended_ = true;
  if (!in_time) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Finished run_program(const std::vector<std::string>& command, const Subprocess::Options& options) {
  Subprocess program(command, options);
  Finished finished;
  finished.exit_code = program.wait();
  finished.out = program.out();
  finished.err = program.err();
  return finished;
}

Tag::Tag() {
  static int counter = 0;
  value_ = std::to_string(getpid()) + "-" + std::to_string(++counter) + "-" +
           std::to_string(Clock::now().time_since_epoch().count());
}

std::vector<pid_t> Tag::processes() const {
  std::vector<pid_t> found;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    const auto pid = static_cast<pid_t>(std::atoi(entry->d_name));
    if (pid <= 0) continue;
    // A zombie's environment is empty, so it is not found.
    std::ifstream file("/proc/" + std::string(entry->d_name) + "/environ", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find("TRIREME_TEST_TAG=" + value_) != std::string::npos) found.push_back(pid);
  }
  closedir(proc);
  return found;
}

int Tag::await_none(Milliseconds limit) const {
  const auto deadline = Clock::now() + limit;
  std::vector<pid_t> left = processes();
  while (!left.empty() && Clock::now() < deadline) {
    for (const pid_t pid : left) {
      const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
      if (fd < 0) continue;
      pollfd item{fd, POLLIN, 0};
      poll(&item, 1, left_ms(deadline));
      close(fd);
    }
    left = processes();  // those that were started in the meantime
  }
  return static_cast<int>(left.size());
}

}  // namespace trireme::testing
