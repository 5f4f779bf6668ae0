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
#include <optional>
#include <string>
#include <utility>

#include "comm/transport/call_info.h"

namespace trireme::profile {
class CollectiveTrace;
}

namespace trireme::comm {

struct Call;

/// Shared ownership of a Call. Calls come from a pool and go back to it, so that steady use allocates nothing.
class CallPtr {
 public:
  CallPtr() = default;
  explicit CallPtr(Call* adopted) noexcept : call_(adopted) {}
  CallPtr(const CallPtr& other) noexcept;
  CallPtr(CallPtr&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  CallPtr& operator=(CallPtr other) noexcept {
    std::swap(call_, other.call_);
    return *this;
  }
  ~CallPtr();

  [[nodiscard]] Call* get() const noexcept { return call_; }
  Call& operator*() const noexcept { return *call_; }
  Call* operator->() const noexcept { return call_; }
  explicit operator bool() const noexcept { return call_ != nullptr; }

 private:
  Call* call_ = nullptr;
};

class CallQueue {
 public:
  /// What a call does; runs once, on the executing thread, with the numbered CallInfo. Captures of up to 16 bytes cost no allocation.
  using Body = std::function<void(const CallInfo&)>;
  /// Called once when the call is done, with its error or null, on the executing thread, before waiters return. It may issue and wait for
  /// further calls of this queue, and may destroy the queue.
  using Done = std::function<void(std::exception_ptr)>;

  /// `trace` may be null. `thread_name` at most 15 characters. `trace_group` is the group's number in the trace; without it the queue
  /// registers its own name.
  CallQueue(std::string group_name, std::string thread_name, profile::CollectiveTrace* trace,
            std::optional<uint16_t> trace_group = {});
  /// Waits for a call that is running (Communicator::abort ends it early); calls that nobody executed fail with kInternal. In a forked
  /// child it does nothing.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// Numbers the call and queues it. [thread-safe, never blocks on peers] Throws kOutOfMemory, with nothing queued, when the progress
  /// thread cannot be started.
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

  /// Number of the last call issued, and of the last call over (its done function may still run).
  [[nodiscard]] uint64_t last_issued() const noexcept;
  [[nodiscard]] uint64_t last_finished() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme::comm
