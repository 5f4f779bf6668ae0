#include "support/stepped_child.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>

namespace trireme::test {

#if defined(__x86_64__)

namespace {

const char* file_call(long number) {
  switch (number) {
    case SYS_open:
    case SYS_openat:
      return "open";
    case SYS_mkdir:
    case SYS_mkdirat:
      return "mkdir";
    case SYS_flock:
      return "flock";
    case SYS_write:
    case SYS_writev:
      return "write";
    case SYS_ftruncate:
    case SYS_fallocate:
      return "allocate";
    case SYS_link:
    case SYS_linkat:
      return "link";
    case SYS_fsync:
    case SYS_fdatasync:
      return "fsync";
    case SYS_rename:
    case SYS_renameat:
    case SYS_renameat2:
      return "rename";
    case SYS_unlink:
    case SYS_unlinkat:
    case SYS_rmdir:
      return "unlink";
    case SYS_getdents64:
      return "getdents";
    default:
      return nullptr;
  }
}

void set_register(pid_t child, size_t offset, long value) {
  ptrace(PTRACE_POKEUSER, child, offset, reinterpret_cast<void*>(value));
}

SteppedChild failed(pid_t child, const char* what) {
  SteppedChild result;
  result.unavailable = std::string(what) + ": " + std::strerror(errno);
  if (child > 0) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return result;
}

}  // namespace

SteppedChild run_stepped(const std::function<int()>& body, const Strike& strike) {
  const pid_t child = fork();
  if (child < 0) return failed(child, "fork");
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(99);
    raise(SIGSTOP);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return failed(0, "a child may not be traced here (ptrace)");
  if (ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0)
    return failed(child, "ptrace");

  SteppedChild result;
  bool entering = false;  // the next stop is the entry of a call
  bool struck = false;    // and this one's exit is to give the error
  int signal = 0;
  while (true) {
    if (ptrace(PTRACE_SYSCALL, child, nullptr, signal) != 0) return failed(child, "ptrace");
    signal = 0;
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) break;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
      signal = WSTOPSIG(status);
      continue;
    }
    entering = !entering;
    if (!entering) {
      if (struck) set_register(child, offsetof(user_regs_struct, rax), -strike.error_number);
      struck = false;
      continue;
    }
    const long number = ptrace(PTRACE_PEEKUSER, child, offsetof(user_regs_struct, orig_rax), nullptr);
    const char* name = file_call(number);
    if (name == nullptr) continue;
    result.calls.emplace_back(name);
    if (static_cast<int>(result.calls.size()) != strike.call) continue;
    if (strike.error_number == 0) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    set_register(child, offsetof(user_regs_struct, orig_rax), -1);  // no such call: the kernel does nothing
    struck = true;
  }
  result.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

#else

SteppedChild run_stepped(const std::function<int()>& /*body*/, const Strike& /*strike*/) {
  SteppedChild result;
  result.unavailable = "system calls are only struck on x86-64";
  return result;
}

#endif

}  // namespace trireme::test
