#include "doctor/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::doctor {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  Fd read;
  Fd write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorKind::kIo, str("[doctor.run] no pipe: ", std::strerror(errno)));
  return {Fd(ends[0]), Fd(ends[1])};
}

[[noreturn]] void child(const std::string& program, const std::vector<std::string>& command, const Pipe& out,
                        const Pipe& err) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(out.write.get(), STDOUT_FILENO);
  dup2(err.write.get(), STDERR_FILENO);
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  _exit(127);
}

/// Reads both streams until they end or the time is over; false: it is over.
bool drain(Fd& out, Fd& err, ToolOutput& output, Clock::time_point deadline) {
  constexpr size_t kMost = size_t{16} << 20;
  std::array<char, 65536> buffer{};
  while (out || err) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    std::array<pollfd, 2> fds = {pollfd{out.get(), POLLIN, 0}, pollfd{err.get(), POLLIN, 0}};
    if (poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(left, 60'000))) < 0 && errno != EINTR)
      return false;
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      Fd& fd = i == 0 ? out : err;
      std::string& text = i == 0 ? output.out : output.err;
      const ssize_t got = read(fd.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        fd.reset();
        continue;
      }
      if (output.first_byte == std::chrono::system_clock::time_point{})
        output.first_byte = std::chrono::system_clock::now();
      if (text.size() < kMost) text.append(buffer.data(), static_cast<size_t>(got));
    }
  }
  return true;
}

}  // namespace

std::string ToolOutput::first_line() const {
  constexpr size_t kMost = 200;
  for (std::string_view text : {std::string_view(out), std::string_view(err)}) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) return std::string(line.substr(0, kMost));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
  }
  return {};
}

std::string find_in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0 ? program : std::string{};
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    std::string candidate = str(rest.substr(0, colon), "/", program);
    if (colon != 0 && access(candidate.c_str(), X_OK) == 0) return candidate;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return {};
}

ToolOutput run_tool(const std::vector<std::string>& command, std::chrono::milliseconds limit) {
  ToolOutput output;
  const std::string program = find_in_path(command.at(0));
  if (program.empty()) {
    output.missing = true;
    return output;
  }
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  const pid_t pid = fork();
  if (pid < 0) throw Error(ErrorKind::kIo, str("[doctor.run] cannot start ", program, ": ", std::strerror(errno)));
  if (pid == 0) child(program, command, out, err);
  setpgid(pid, pid);
  out.write.reset();
  err.write.reset();
  const Clock::time_point deadline = deadline_after(limit);
  if (!drain(out.read, err.read, output, deadline)) output.timed_out = true;
  // Both streams may be closed by a program that lives on; one that is stuck in the kernel does not even die when killed.
  int status = 0;
  constexpr std::chrono::milliseconds kToDie{500};
  Clock::time_point last = deadline;
  if (output.timed_out) {
    kill(-pid, SIGKILL);
    last = Clock::now() + kToDie;
  }
  while (waitpid(pid, &status, WNOHANG) != pid) {
    if (Clock::now() >= last) {
      if (output.timed_out) break;
      output.timed_out = true;
      kill(-pid, SIGKILL);
      last = Clock::now() + kToDie;
    }
    poll(nullptr, 0, 1);
  }
  kill(-pid, SIGKILL);  // what it left behind
  output.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return output;
}

}  // namespace trireme::doctor
