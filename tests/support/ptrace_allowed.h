// Whether this machine lets one process look into another, asked without the code under test: a test may be skipped for that alone.
#pragma once

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

namespace trireme::test {

/// Why not; empty: it does.
inline std::string ptrace_refused() {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  const std::string why = ptrace(PTRACE_SEIZE, child, nullptr, nullptr) == 0 ? "" : std::strerror(errno);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return why.empty() ? "" : "this machine lets no process look into another: " + why;
}

}  // namespace trireme::test
