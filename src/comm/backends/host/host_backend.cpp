#include "comm/backends/host/host_backend.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/log.h"
#include "base/str.h"
#include "comm/backends/host/host_calls.h"
#include "comm/step.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

CallInfo make_info(OpKind op, DType dtype, at::IntArrayRef dims, int64_t count) {
  CallInfo info;
  info.op = op;
  info.dtype = dtype;
  info.set_dims({dims.data(), dims.size()});
  info.count = static_cast<uint64_t>(count);
  info.step = current_step();
  return info;
}

/// `tensor` must hold what `times` tensors like `other` hold.
void check_numel(const CallSite& where, const char* name, const at::Tensor& tensor, const char* other_name,
                 const at::Tensor& other, int times = 1) {
  check_tensor(where, tensor);
  check_same_dtype(where, other, tensor);
  if (tensor.numel() == other.numel() * times) return;
  throw Error(ErrorKind::kInvalidArgument,
              str(where.prefix(), name, ' ', describe(tensor), " must have ", times == 1 ? "" : str(times, " times "),
                  "as many elements as the ", other_name, ", ", describe(other), "."));
}

/// c10d passes a list of lists, one for each device of a rank; a rank has one.
const std::vector<at::Tensor>& one_for_each_rank(const CallSite& where, const char* name,
                                                 const std::vector<std::vector<at::Tensor>>& lists, int size) {
  if (lists.size() == 1 && static_cast<int>(lists[0].size()) == size) return lists[0];
  throw Error(ErrorKind::kInvalidArgument,
              str(where.prefix(), lists.empty() ? 0 : lists[0].size(), " ", name,
                  " tensors were passed; one for each of the ", size, " ranks is required."));
}

}  // namespace

HostBackend::HostBackend(std::unique_ptr<Communicator> communicator, std::shared_ptr<profile::CollectiveTrace> trace,
                         uint16_t trace_group)
    : c10d::Backend(communicator->rank(), communicator->size()),
      trace_(std::move(trace)),
      communicator_(std::move(communicator)),
      trace_group_(trace_group),
      queue_(std::make_unique<CallQueue>(group_name(), "trireme-comm", trace_.get(), trace_group_)) {}

HostBackend::~HostBackend() { shutdown(); }

void HostBackend::shutdown() {
  if (owner_ != getpid()) return;  // a forked child has no part in the group, nor the threads that may hold its locks
  // A call that is still running, or was never waited for, would hold up the end until its time-out.
  bool pending = queue_->last_issued() != queue_->last_finished();
  {
    const std::lock_guard lock(lanes_mutex_);
    for (const auto& [key, lane] : lanes_) pending = pending || lane->last_issued() != lane->last_finished();
  }
  if (pending)
    communicator_->abort(str("rank ", global_rank(), " of group '", group_name(), "' ended with calls pending"));
  communicator_->leave();
}

void HostBackend::abort() {
  communicator_->abort(str("abort() on rank ", global_rank(), " of group '", group_name(), "'"));
}

c10::intrusive_ptr<c10d::Backend::Options> HostBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("host", communicator_->options().timeout);
  options->group_name = group_name();
  return options;
}

int HostBackend::global_rank() const { return communicator_->options().global_ranks[static_cast<size_t>(rank_)]; }

CallSite HostBackend::site(std::string_view operation) const {
  return {operation, rank_, size_, group_name(), global_rank()};
}

void HostBackend::warn_of_timeout(std::chrono::milliseconds timeout) const {
  if (timeout == c10d::kUnsetTimeout || timeout == communicator_->options().timeout) return;
  static std::atomic<bool> warned{false};
  if (warned.exchange(true, std::memory_order_relaxed)) return;
  log::warn("comm.host", "a time-out of ", timeout.count(), " ms was given for one call; the host backend uses its ",
            "group's ", communicator_->options().timeout.count(), " ms for every call.");
}

const at::Tensor& HostBackend::only(const CallSite& where, const Tensors& tensors) const {
  if (tensors.size() == 1) return tensors[0];
  throw Error(ErrorKind::kInvalidArgument,
              str(where.prefix(), tensors.size(), " tensors were passed; one per rank is required (a list of several ",
                  "is for several devices in one process, which is not supported)."));
}

int HostBackend::check_peer(const CallSite& where, int64_t peer, bool other) const {
  if (peer >= 0 && peer < size_ && !(other && peer == rank_)) return static_cast<int>(peer);
  throw Error(ErrorKind::kInvalidArgument,
              str(where.prefix(), "group rank ", peer, " was named as ", other ? "peer" : "root", "; it must be in 0..",
                  size_ - 1, other ? " and not this rank." : "."));
}

void HostBackend::before_wait(const CallQueue& waited) {
  if (!has_lanes_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(lanes_mutex_);
  for (const auto& [key, queue] : lanes_) {
    if (queue.get() != &waited && queue->last_issued() != queue->last_finished()) queue->kick();
  }
}

CallQueue& HostBackend::lane(int peer, OpKind direction) {
  const std::lock_guard lock(lanes_mutex_);
  std::unique_ptr<CallQueue>& queue = lanes_[{peer, direction}];
  if (!queue) {
    const char* arrow = direction == OpKind::kSend ? "/send" : "/recv";
    queue = std::make_unique<CallQueue>(str(group_name(), arrow, peer),
                                        str("trireme", direction == OpKind::kSend ? "-s" : "-r", peer), trace_.get(),
                                        trace_group_);
    has_lanes_.store(true, std::memory_order_relaxed);
  }
  return *queue;
}

HostBackend::Works HostBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const CallSite where = site("all_reduce");
  warn_of_timeout(options.timeout);
  const at::Tensor& tensor = only(where, tensors);
  const DType dtype = check_tensor(where, tensor);
  CallInfo info = make_info(OpKind::kAllReduce, dtype, tensor.sizes(), tensor.numel());
  info.reduce = check_reduction(where, options.reduceOp, dtype);
  auto work = c10::make_intrusive<AllReduceWork>(*this, *queue_, rank_, c10d::OpType::ALLREDUCE);
  work->outputs.push_back(tensor);
  work->issue(info);
  return work;
}

HostBackend::Works HostBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const CallSite where = site("all_reduce");
  warn_of_timeout(options.timeout);
  if (tensors.empty()) {
    throw Error(ErrorKind::kInvalidArgument,
                str(where.prefix(), "an empty list was passed; pass at least one tensor."));
  }
  auto work = c10::make_intrusive<AllReduceWork>(*this, *queue_, rank_, c10d::OpType::ALLREDUCE_COALESCED);
  int64_t count = 0;
  DType dtype = DType::kU8;
  for (const at::Tensor& tensor : tensors) {
    dtype = check_tensor(where, tensor);
    check_same_dtype(where, tensors[0], tensor);
    count += tensor.numel();
    work->outputs.push_back(tensor);
  }
  CallInfo info = make_info(OpKind::kAllReduce, dtype, {count}, count);
  info.reduce = check_reduction(where, options.reduceOp, dtype);
  work->issue(info);
  return work;
}

HostBackend::Works HostBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const CallSite where = site("broadcast");
  warn_of_timeout(options.timeout);
  const at::Tensor& tensor = only(where, tensors);
  CallInfo info = make_info(OpKind::kBroadcast, check_tensor(where, tensor), tensor.sizes(), tensor.numel());
  info.root = check_peer(where, options.rootRank, /*other=*/false);
  auto work = c10::make_intrusive<BroadcastWork>(*this, *queue_, rank_, c10d::OpType::BROADCAST);
  work->outputs.push_back(tensor);
  work->issue(info);
  return work;
}

HostBackend::Works HostBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  const CallSite where = site("all_gather");
  warn_of_timeout(options.timeout);
  const at::Tensor& input = only(where, inputs);
  const DType dtype = check_tensor(where, input);
  auto work = c10::make_intrusive<AllGatherWork>(*this, *queue_, rank_, c10d::OpType::ALLGATHER);
  for (const at::Tensor& output : one_for_each_rank(where, "output", outputs, size_)) {
    check_numel(where, "output", output, "input", input);
    work->outputs.push_back(output);
  }
  work->inputs.push_back(input);
  check_apart(where, ranges_of(work->outputs), only_own(input, rank_, size_), rank_);
  work->issue(make_info(OpKind::kAllGather, dtype, input.sizes(), input.numel()));
  return work;
}

HostBackend::Works HostBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& options) {
  const CallSite where = site("all_gather");
  warn_of_timeout(options.timeout);
  const DType dtype = check_tensor(where, input);
  check_numel(where, "output", output, "input", input, size_);
  auto work = c10::make_intrusive<AllGatherWork>(*this, *queue_, rank_, c10d::OpType::_ALLGATHER_BASE);
  check_apart(where, equal_parts(output, size_), only_own(input, rank_, size_), rank_);
  work->outputs.push_back(output);
  work->inputs.push_back(input);
  work->issue(make_info(OpKind::kAllGather, dtype, input.sizes(), input.numel()));
  return work;
}

HostBackend::Works HostBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ReduceScatterOptions& options) {
  const CallSite where = site("reduce_scatter");
  warn_of_timeout(options.timeout);
  const at::Tensor& output = only(where, outputs);
  const DType dtype = check_tensor(where, output);
  auto work = c10::make_intrusive<ReduceScatterWork>(*this, *queue_, rank_, c10d::OpType::REDUCE_SCATTER);
  for (const at::Tensor& input : one_for_each_rank(where, "input", inputs, size_)) {
    check_numel(where, "input", input, "output", output);
    work->inputs.push_back(input);
  }
  CallInfo info = make_info(OpKind::kReduceScatter, dtype, {size_, output.numel()}, output.numel() * size_);
  info.reduce = check_reduction(where, options.reduceOp, dtype);
  check_apart(where, only_own(output, rank_, size_), ranges_of(work->inputs), rank_);
  work->outputs.push_back(output);
  work->issue(info);
  return work;
}

HostBackend::Works HostBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& options) {
  const CallSite where = site("reduce_scatter");
  warn_of_timeout(options.timeout);
  const DType dtype = check_tensor(where, output);
  check_numel(where, "input", input, "output", output, size_);
  check_apart(where, only_own(output, rank_, size_), equal_parts(input, size_), rank_);
  CallInfo info = make_info(OpKind::kReduceScatter, dtype, {size_, output.numel()}, input.numel());
  info.reduce = check_reduction(where, options.reduceOp, dtype);
  auto work = c10::make_intrusive<ReduceScatterWork>(*this, *queue_, rank_, c10d::OpType::_REDUCE_SCATTER_BASE);
  work->outputs.push_back(output);
  work->inputs.push_back(input);
  work->issue(info);
  return work;
}

HostBackend::Works HostBackend::coalesce(std::string_view operation, Tensors& outputs, Tensors& inputs,
                                         const std::function<Works(at::Tensor&, at::Tensor&)>& call) {
  const CallSite where = site(operation);
  if (outputs.empty() || outputs.size() != inputs.size()) {
    throw Error(ErrorKind::kInvalidArgument,
                str(where.prefix(), outputs.size(), " outputs and ", inputs.size(),
                    " inputs were passed; as many of one as of the other, and at least one, are required."));
  }
  // Calls run in issue order and an error ends the group, so the last Work stands for all of them.
  Works last;
  for (size_t i = 0; i < outputs.size(); ++i) last = call(outputs[i], inputs[i]);
  auto& work = static_cast<HostWork&>(*last);
  work.earlier.assign(outputs.begin(), outputs.end() - 1);
  return last;
}

HostBackend::Works HostBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& options) {
  return coalesce("all_gather", outputs, inputs,
                  [&](at::Tensor& output, at::Tensor& input) { return _allgather_base(output, input, options); });
}

HostBackend::Works HostBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& options) {
  return coalesce("reduce_scatter", outputs, inputs,
                  [&](at::Tensor& output, at::Tensor& input) { return _reduce_scatter_base(output, input, options); });
}

HostBackend::Works HostBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const CallSite where = site("all_to_all");
  warn_of_timeout(options.timeout);
  if (static_cast<int>(outputs.size()) != size_ || static_cast<int>(inputs.size()) != size_) {
    throw Error(ErrorKind::kInvalidArgument,
                str(where.prefix(), outputs.size(), " outputs and ", inputs.size(), " inputs were passed; one of each ",
                    "for each of the ", size_, " ranks is required."));
  }
  auto work = c10::make_intrusive<AllToAllWork>(*this, *queue_, rank_, c10d::OpType::ALLTOALL);
  DType dtype = DType::kU8;
  int64_t count = 0;
  for (int r = 0; r < size_; ++r) {
    dtype = check_tensor(where, inputs[r]);
    check_tensor(where, outputs[r]);
    check_same_dtype(where, inputs[0], inputs[r]);
    check_same_dtype(where, inputs[0], outputs[r]);
    count += inputs[r].numel();
    work->inputs.push_back(inputs[r]);
    work->outputs.push_back(outputs[r]);
    work->send.push_back({inputs[r].data_ptr(), inputs[r].nbytes()});
    work->receive.push_back({outputs[r].data_ptr(), outputs[r].nbytes()});
  }
  check_apart(where, ranges_of(work->outputs), ranges_of(work->inputs), rank_);
  work->issue(make_info(OpKind::kAllToAll, dtype, {}, count));
  return work;
}

HostBackend::Works HostBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                              const c10d::AllToAllOptions& options) {
  const CallSite where = site("all_to_all");
  warn_of_timeout(options.timeout);
  const DType dtype = check_tensor(where, input);
  check_tensor(where, output);
  check_same_dtype(where, input, output);
  auto work = c10::make_intrusive<AllToAllWork>(*this, *queue_, rank_, c10d::OpType::ALLTOALL_BASE);
  const auto split = [&](const at::Tensor& tensor, const std::vector<int64_t>& splits, const char* which,
                         auto& blocks) {
    const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    const bool equal = splits.empty();
    const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    const bool right = equal ? rows % size_ == 0
                             : static_cast<int>(splits.size()) == size_ && sum == rows &&
                                   std::all_of(splits.begin(), splits.end(), [](int64_t part) { return part >= 0; });
    if (!right) {
      throw Error(ErrorKind::kInvalidArgument,
                  str(where.prefix(), which, " ", describe(tensor), " with splits [", join(splits), "]: ", rows,
                      equal ? " rows cannot be cut into equal parts for "
                            : " rows need as many non-negative parts, one for each of ",
                      size_, " ranks. Give splits that add up to the size of dim 0."));
    }
    auto* data = static_cast<std::byte*>(tensor.data_ptr());
    const size_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
    for (int r = 0; r < size_; ++r) {
      const size_t bytes = static_cast<size_t>(equal ? rows / size_ : splits[r]) * row_bytes;
      blocks.push_back({data, bytes});
      data += bytes;
    }
  };
  split(input, input_splits, "input", work->send);
  split(output, output_splits, "output", work->receive);
  const auto as_ranges = [](const auto& blocks) {
    std::vector<MemoryRange> ranges;
    for (const auto& block : blocks) ranges.push_back({static_cast<const std::byte*>(block.data), block.bytes});
    return ranges;
  };
  check_apart(where, as_ranges(work->receive), as_ranges(work->send), rank_);
  work->inputs.push_back(input);
  work->outputs.push_back(output);
  work->issue(make_info(OpKind::kAllToAll, dtype, {}, input.numel()));
  return work;
}

HostBackend::Works HostBackend::barrier(const c10d::BarrierOptions& options) {
  warn_of_timeout(options.timeout);
  auto work = c10::make_intrusive<BarrierWork>(*this, *queue_, rank_, c10d::OpType::BARRIER);
  work->issue(make_info(OpKind::kBarrier, DType::kU8, {}, 0));
  return work;
}

HostBackend::Works HostBackend::point_to_point(OpKind op, Tensors& tensors, int peer, int tag) {
  const bool sends = op == OpKind::kSend;
  const CallSite where = site(sends ? "send" : "recv");
  const at::Tensor& tensor = only(where, tensors);
  CallInfo info = make_info(op, check_tensor(where, tensor), tensor.sizes(), tensor.numel());
  info.root = check_peer(where, peer, /*other=*/true);
  if (tag != 0) {
    throw Error(ErrorKind::kUnsupported, str(where.prefix(), "tag ", tag, " was given; messages of a pair are matched ",
                                             "in order and have no tags. Use tag 0, or a sub-group per purpose."));
  }
  CallQueue& queue = lane(peer, op);
  c10::intrusive_ptr<HostWork> work;
  if (sends) {
    work = c10::make_intrusive<SendWork>(*this, queue, rank_, c10d::OpType::SEND);
    work->inputs.push_back(tensor);
  } else {
    work = c10::make_intrusive<RecvWork>(*this, queue, rank_, c10d::OpType::RECV);
    work->outputs.push_back(tensor);
  }
  work->issue(info);
  return work;
}

HostBackend::Works HostBackend::send(Tensors& tensors, int to, int tag) {
  return point_to_point(OpKind::kSend, tensors, to, tag);
}
HostBackend::Works HostBackend::recv(Tensors& tensors, int from, int tag) {
  return point_to_point(OpKind::kRecv, tensors, from, tag);
}

c10d::ErrorType HostBackend::getError() {
  try {
    communicator_->throw_if_broken();
    return c10d::ErrorType::SUCCESS;
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kTimeout ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::COMM_ERROR;
  }
}

}  // namespace trireme::comm
