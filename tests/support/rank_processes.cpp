#include "support/rank_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/str.h"
#include "support/patience.h"
#include "support/pulse_clock.h"

namespace trireme::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Lines from child to parent: "mark NAME" and "end TICKS KIND TEXT", the time in ticks of the steady clock.
int64_t now_ticks() { return Clock::now().time_since_epoch().count(); }

void write_line(int fd, const std::string& line) {
  const std::string text = line + "\n";
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote <= 0) _exit(9);
    done += static_cast<size_t>(wrote);
  }
}

}  // namespace

struct RankProcesses::Impl {
  struct Child {
    int pid = -1;
    int pipe = -1;
    std::string unread;
    std::vector<std::string> lines;
    size_t marks_used = 0;
  };
  std::vector<Child> children;
  std::unique_ptr<rendezvous::TcpStoreServer> server;
  std::shared_ptr<rendezvous::Store> local;
  std::optional<test::PulseClock> pulses;
  std::optional<Clock::time_point> killed_at;

  // Takes in what the child has said; false at the end of its pipe.
  bool read_some(Child& child, std::chrono::milliseconds wait) {
    pollfd entry = {.fd = child.pipe, .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, static_cast<int>(wait.count())) <= 0) return true;
    char buffer[4096];
    const ssize_t got = read(child.pipe, buffer, sizeof(buffer));
    if (got <= 0) return false;
    child.unread.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = child.unread.find('\n')) != std::string::npos; child.unread.erase(0, end + 1)) {
      child.lines.push_back(child.unread.substr(0, end));
    }
    return true;
  }
};

RankProcesses::RankProcesses(int size, const Body& body) : impl_(std::make_unique<Impl>()) {
  // The port reaches the children by a pipe each, since they are forked before the server's thread exists.
  std::vector<int> port_writers;
  for (int rank = 0; rank < size; ++rank) {
    int to_parent[2];
    int to_child[2];
    if (pipe2(to_parent, O_CLOEXEC) != 0 || pipe2(to_child, O_CLOEXEC) != 0)
      throw Error(ErrorKind::kIo, "[test] pipe2 failed");
    const int pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int port = 0;
      if (read(to_child[0], &port, sizeof(port)) != static_cast<ssize_t>(sizeof(port))) _exit(8);
      const int fd = to_parent[1];
      try {
        const auto store = rendezvous::connect_tcp_store("127.0.0.1", port, test::kPatience);
        body(rank, *store, [fd](const std::string& mark) { write_line(fd, "mark " + mark); });
        write_line(fd, str("end ", now_ticks(), " -1 "));
        _exit(0);
      } catch (const Error& error) {
        std::string text = error.what();
        for (char& c : text) c = c == '\n' ? ' ' : c;
        write_line(fd, str("end ", now_ticks(), " ", static_cast<int>(error.kind()), " ", text));
      } catch (const std::exception& error) {
        write_line(fd, str("end ", now_ticks(), " ", static_cast<int>(ErrorKind::kInternal), " ", error.what()));
      }
      _exit(1);
    }
    close(to_parent[1]);
    close(to_child[0]);
    Impl::Child child;
    child.pid = pid;
    child.pipe = to_parent[0];
    impl_->children.push_back(std::move(child));
    port_writers.push_back(to_child[1]);
  }
  impl_->pulses.emplace();
  impl_->server = rendezvous::start_tcp_store_server({});
  impl_->local = impl_->server->local();
  const int port = impl_->server->port();
  for (const int writer : port_writers) {
    if (write(writer, &port, sizeof(port)) != static_cast<ssize_t>(sizeof(port)))
      ADD_FAILURE() << "a rank died at once";
    close(writer);
  }
}

RankProcesses::~RankProcesses() {
  for (Impl::Child& child : impl_->children) {
    if (child.pid > 0) {
      ::kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    if (child.pipe >= 0) close(child.pipe);
  }
}

void RankProcesses::await_mark(int rank, const std::string& mark) {
  Impl::Child& child = impl_->children.at(static_cast<size_t>(rank));
  const auto deadline = Clock::now() + test::kPatience;
  while (Clock::now() < deadline) {
    for (const std::string& line : child.lines) {
      if (line == "mark " + mark) return;
    }
    if (!impl_->read_some(child, std::chrono::milliseconds(100))) break;
  }
  ADD_FAILURE() << "rank " << rank << " never reached '" << mark
                << "'; it said: " << (child.lines.empty() ? "nothing" : child.lines.back());
}

void RankProcesses::kill(int rank, int signal) {
  ::kill(pid(rank), signal);
  impl_->killed_at = Clock::now();
}

int RankProcesses::pid(int rank) const { return impl_->children.at(static_cast<size_t>(rank)).pid; }

rendezvous::Store& RankProcesses::store() { return *impl_->local; }

std::vector<ProcessOutcome> RankProcesses::join() {
  std::vector<ProcessOutcome> outcomes;
  const auto deadline = Clock::now() + test::kPatience;
  for (Impl::Child& child : impl_->children) {
    while (impl_->read_some(child, std::chrono::milliseconds(100))) {
      if (Clock::now() < deadline) continue;
      ADD_FAILURE() << "rank " << outcomes.size() << " hangs; killed";
      ::kill(child.pid, SIGKILL);
    }
    int status = 0;
    waitpid(child.pid, &status, 0);
    child.pid = -1;
    ProcessOutcome outcome;
    outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    for (const std::string& line : child.lines) {
      int64_t end_ticks = 0;
      int kind = 0;
      int text_at = 0;
      if (std::sscanf(line.c_str(), "end %" SCNd64 " %d %n", &end_ticks, &kind, &text_at) < 2) continue;
      if (kind >= 0) {
        outcome.kind = static_cast<ErrorKind>(kind);
        outcome.error = line.substr(static_cast<size_t>(text_at));
      }
      if (impl_->killed_at) {
        outcome.error_after_kill_s =
            impl_->pulses->seconds_between(*impl_->killed_at, Clock::time_point(Clock::duration(end_ticks)));
      }
    }
    outcomes.push_back(outcome);
  }
  return outcomes;
}

}  // namespace trireme::testing
