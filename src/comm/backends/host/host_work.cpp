#include "comm/backends/host/host_work.h"

#include <ATen/core/jit_type.h>

#include <atomic>

#include "base/log.h"
#include "comm/backends/host/host_backend.h"

namespace trireme::comm {
namespace {

void warn_of_timeout_once(std::chrono::milliseconds timeout) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true, std::memory_order_relaxed)) return;
  log::warn("comm.host", "a time-out of ", timeout.count(),
            " ms was given for one wait; the host backend uses its group's time-out for every call.");
}

}  // namespace

HostWork::HostWork(HostBackend& backend, CallQueue& queue, int rank, c10d::OpType type)
    : c10d::Work(rank, type), backend_(&backend), queue_(&queue) {}

void HostWork::issue(const CallInfo& info) {
  // One word each, so that std::function keeps them without an allocation.
  c10::raw::intrusive_ptr::incref(this);
  try {
    call_ = queue_->issue(
        info, [this](const CallInfo& numbered) { run(backend_->communicator(), numbered); },
        [this](const std::exception_ptr& error) {
          done(error);
          c10::raw::intrusive_ptr::decref(this);
        });
  } catch (...) {
    c10::raw::intrusive_ptr::decref(this);
    throw;
  }
}

// The call itself turns finished a moment after done(), which already completes the Future.
bool HostWork::isCompleted() {
  const std::lock_guard lock(mutex_);
  return finished_;
}

bool HostWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return finished_ && !exception_;
}

std::exception_ptr HostWork::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

std::vector<at::Tensor> HostWork::result() {
  std::vector<at::Tensor> all = earlier;
  all.insert(all.end(), outputs.begin(), outputs.end());
  return all;
}

bool HostWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) warn_of_timeout_once(timeout);
  if (!CallQueue::finished(*call_)) {
    backend_->before_wait(*queue_);
    queue_->wait(call_);
  } else if (std::exception_ptr error = CallQueue::error(*call_)) {
    std::rethrow_exception(error);
  }
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> HostWork::getFuture() {
  bool pending = false;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    if (!future_) {
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
      if (finished_) {
        complete(*future_, exception_);
      } else {
        pending = true;
      }
    }
    future = future_;
  }
  // Whoever waits on a Future cannot execute the call, so the progress thread must.
  if (pending) queue_->kick();
  return future;
}

uint64_t HostWork::getSequencenumber() const { return CallQueue::info(*call_).call; }

void HostWork::done(const std::exception_ptr& error) noexcept {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    exception_ = error;
    future = future_;
  }
  if (future) complete(*future, error);
}

void HostWork::complete(c10::ivalue::Future& future, const std::exception_ptr& error) {
  if (error) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(result()));
  }
}

}  // namespace trireme::comm
