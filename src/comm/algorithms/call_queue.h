// The order in which a group's calls execute, and on which thread.
//
// Calls run in issue order. A thread that waits for a call executes everything up to it itself, without a context
// switch; calls that nobody waits for are taken by the group's progress thread. In steady use issue() makes no system
// call: the progress thread looks by itself every millisecond while the group is active, and is woken only out of a
// long idle time or by kick().
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "comm/transport/call_info.h"

namespace trireme::profile {
class CollectiveTrace;
}

namespace trireme::comm {

class Call;
using CallPtr = std::shared_ptr<Call>;

class CallQueue {
 public:
  /// What a call does; runs once, on the executing thread, with the numbered CallInfo.
  using Body = std::function<void(const CallInfo&)>;
  /// Called once when the call is done, with its error or null, on the executing thread, before waiters return.
  using Done = std::function<void(std::exception_ptr)>;

  /// `trace` may be null. `thread_name` at most 15 characters.
  CallQueue(std::string group_name, std::string thread_name, profile::CollectiveTrace* trace);
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// Numbers the call and queues it. [thread-safe, never blocks on peers]
  [[nodiscard]] CallPtr issue(CallInfo info, Body body, Done done = {});

  /// Executes up to and including `call` on this thread, or waits for the thread that is at it; rethrows its error.
  void wait(const CallPtr& call);

  /// Whether the call is done, successfully or not.
  [[nodiscard]] static bool finished(const Call& call) noexcept;
  [[nodiscard]] static std::exception_ptr error(const Call& call) noexcept;
  [[nodiscard]] static const CallInfo& info(const Call& call) noexcept;

  /// Lets the progress thread start on what is queued now: for work that should overlap with computation. At most one
  /// system call.
  void kick();

  /// Number of the last call issued, and the last call finished.
  [[nodiscard]] uint64_t last_issued() const noexcept;
  [[nodiscard]] uint64_t last_finished() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::comm
