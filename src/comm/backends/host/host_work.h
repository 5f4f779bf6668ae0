// The c10d::Work of the host backend: a call in a CallQueue.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>
#include <vector>

#include "comm/algorithms/call_queue.h"
#include "comm/algorithms/communicator.h"

namespace trireme::comm {

class HostBackend;

/// Purpose       Keeps the tensors of a call alive until it is done, and executes it on the thread that waits.
/// Invariants    The queue holds one reference from issue until the call is done, so a Work may be dropped early.
///               The Future is made only when somebody asks for it.
/// Lifetime      wait() on an unfinished Work needs its backend; a finished one outlives it.
class HostWork : public c10d::Work {
 public:
  HostWork(HostBackend& backend, CallQueue& queue, int rank, c10d::OpType type);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override {}
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

  /// What the call does; on the executing thread.
  virtual void run(Communicator& communicator, const CallInfo& info) = 0;

  /// Queues the call; `self` must be this. [never blocks]
  void issue(const CallInfo& info);

  c10::SmallVector<at::Tensor, 2> outputs;  ///< what getFuture() and result() give
  c10::SmallVector<at::Tensor, 2> inputs;
  std::vector<at::Tensor> earlier;  ///< results of the calls before it that this Work stands for as well

 private:
  void done(const std::exception_ptr& error) noexcept;
  void complete(c10::ivalue::Future& future, const std::exception_ptr& error);

  HostBackend* backend_;
  CallQueue* queue_;
  CallPtr call_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // under mutex_ of the base
  bool finished_ = false;                           // the same, and exception_ of the base
};

}  // namespace trireme::comm
