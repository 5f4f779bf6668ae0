// Runs one function per rank, each in a forked process; ranks meet in a store that the parent serves. Fork happens before any thread.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::testing {

/// How one rank ended: an empty `error` and exit code 0 when its function returned.
struct ProcessOutcome {
  std::string error;  ///< what() of what its function threw
  ErrorKind kind = ErrorKind::kInternal;
  int signal = 0;  ///< that ended it, or 0
  /// From the return of the last kill() to the end of this rank's function, on a PulseClock; -1 when nobody was killed.
  double error_after_kill_s = -1;
};

/// The parent's hand on the ranks while they run.
class RankProcesses {
 public:
  /// In the child: tells the parent that it has come to point `mark`.
  using Reach = std::function<void(const std::string& mark)>;
  /// `store` is the job's store. Runs in the child.
  using Body = std::function<void(int rank, rendezvous::Store& store, const Reach& reach)>;

  RankProcesses(int size, const Body& body);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// Waits until this rank has reached the mark; fails the test after kPatience.
  void await_mark(int rank, const std::string& mark);
  void kill(int rank, int signal = SIGKILL);
  [[nodiscard]] int pid(int rank) const;
  /// The store that the parent serves, seen from the parent.
  [[nodiscard]] rendezvous::Store& store();
  /// Waits for all, at most kPatience (then kills them and fails the test).
  [[nodiscard]] std::vector<ProcessOutcome> join();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::testing
