// CPU ranks of one host: a c10d::Backend over our byte level.
#pragma once

#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/algorithms/call_queue.h"
#include "comm/algorithms/communicator.h"
#include "comm/backends/host/host_work.h"
#include "comm/tensor_check.h"
#include "profile/collective_trace.h"

namespace trireme::comm {

/// Purpose       Translates c10d's calls into calls of a Communicator, in the order of a CallQueue.
/// Invariants    Collectives run in issue order, on the thread that waits or on the queue's progress thread. Each
///               (peer, direction) of send/recv has a queue of its own.
/// Thread safety Calls may be issued from any thread; the order among threads is the caller's business.
/// Lifetime      Unfinished works must not be waited on after it.
class HostBackend final : public c10d::Backend {
 public:
  /// `trace_group` is the group's number in the trace, if there is one.
  HostBackend(std::unique_ptr<Communicator> communicator, std::shared_ptr<profile::CollectiveTrace> trace,
              uint16_t trace_group);
  ~HostBackend() override;

  const std::string getBackendName() const override { return "host"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;

  using Works = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  Works allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Works allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Works broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Works allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Works _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Works reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                       const c10d::ReduceScatterOptions& options) override;
  Works _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Works allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) override;
  Works reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                        const c10d::ReduceScatterOptions& options) override;
  Works alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Works alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                      std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Works barrier(const c10d::BarrierOptions& options) override;
  Works send(Tensors& tensors, int to, int tag) override;
  Works recv(Tensors& tensors, int from, int tag) override;

  // Refused by name: kUnsupported.
  Works allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Works reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Works allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                            const c10d::AllgatherOptions& options) override;
  Works gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Works scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  Works recvAnysource(Tensors& tensors, int tag) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  void startCoalescing() override;
  Works endCoalescing() override;
  void setTimeout(std::chrono::milliseconds timeout) override;

  void setSequenceNumberForGroup() override {}  // counts from 0 on every rank; nothing to agree on
  uint64_t getSequenceNumberForGroup() override { return queue_->last_issued(); }
  void waitForPendingWorks() override;  // refused
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

  // For the library itself.
  [[nodiscard]] Communicator& communicator() noexcept { return *communicator_; }
  [[nodiscard]] CallQueue& queue() noexcept { return *queue_; }
  [[nodiscard]] const std::string& group_name() const { return communicator_->options().group_name; }

  /// Lets queued sends go ahead when this thread is about to wait for something else.
  void before_wait(const CallQueue& waited);

 private:
  [[nodiscard]] int global_rank() const;
  [[nodiscard]] CallSite site(std::string_view operation) const;
  [[noreturn]] void refuse(std::string_view operation) const;
  void warn_of_timeout(std::chrono::milliseconds timeout) const;
  const at::Tensor& only(const CallSite& where, const Tensors& tensors) const;
  int check_peer(const CallSite& where, int64_t peer, bool other) const;
  CallQueue& lane(int peer, OpKind direction);
  Works coalesce(std::string_view operation, Tensors& outputs, Tensors& inputs,
                 const std::function<Works(at::Tensor&, at::Tensor&)>& call);
  Works point_to_point(OpKind op, Tensors& tensors, int peer, int tag);

  const pid_t owner_ = getpid();
  std::shared_ptr<profile::CollectiveTrace> trace_;
  std::unique_ptr<Communicator> communicator_;
  const uint16_t trace_group_;
  std::mutex lanes_mutex_;
  std::map<std::pair<int, OpKind>, std::unique_ptr<CallQueue>> lanes_;
  std::atomic<bool> has_lanes_{false};
  std::unique_ptr<CallQueue> queue_;  // after the communicator, so that it ends first
};

}  // namespace trireme::comm
