#include "trireme/comm/collectives.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "trireme/comm/group.h"

namespace trireme::comm {
namespace {

using Op = c10d::ReduceOp::RedOpType;
using Tensors = std::vector<at::Tensor>;

Work all_reduce(const Group& group, const at::Tensor& tensor, Op op) {
  Tensors tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  return Work(group.c10d()->allreduce(tensors, options));
}

Work all_reduce(const Group& group, at::TensorList list, Op op) {
  Tensors tensors = list.vec();
  c10d::AllreduceCoalescedOptions options;
  options.reduceOp = op;
  return Work(group.c10d()->allreduce_coalesced(tensors, options));
}

Work reduce_scatter(const Group& group, const at::Tensor& output, const Tensors& inputs, Op op) {
  Tensors outputs{output};
  std::vector<Tensors> lists{inputs};
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  return Work(group.c10d()->reduce_scatter(outputs, lists, options));
}

Work reduce_scatter_base(const Group& group, at::Tensor output, at::Tensor input, Op op) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  return Work(group.c10d()->reduce_scatter_single(output, input, options));
}

}  // namespace

Work::Work() = default;
Work::Work(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
Work::~Work() = default;
Work::Work(const Work&) = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(const Work&) = default;
Work& Work::operator=(Work&&) noexcept = default;

void Work::wait() {
  if (work_) work_->wait();
}
bool Work::done() const { return !work_ || work_->isCompleted(); }

Work all_reduce_sum(const Group& group, const at::Tensor& tensor) { return all_reduce(group, tensor, Op::SUM); }
Work all_reduce_avg(const Group& group, const at::Tensor& tensor) { return all_reduce(group, tensor, Op::AVG); }
Work all_reduce_min(const Group& group, const at::Tensor& tensor) { return all_reduce(group, tensor, Op::MIN); }
Work all_reduce_max(const Group& group, const at::Tensor& tensor) { return all_reduce(group, tensor, Op::MAX); }
Work all_reduce_sum(const Group& group, at::TensorList tensors) { return all_reduce(group, tensors, Op::SUM); }
Work all_reduce_avg(const Group& group, at::TensorList tensors) { return all_reduce(group, tensors, Op::AVG); }

Work broadcast(const Group& group, const at::Tensor& tensor, int root) {
  Tensors tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return Work(group.c10d()->broadcast(tensors, options));
}

Work all_gather(const Group& group, const Tensors& outputs, const at::Tensor& input) {
  std::vector<Tensors> lists{outputs};
  Tensors inputs{input};
  return Work(group.c10d()->allgather(lists, inputs));
}

Work all_gather_base(const Group& group, const at::Tensor& output, const at::Tensor& input) {
  at::Tensor to = output;
  at::Tensor from = input;
  return Work(group.c10d()->all_gather_single(to, from));
}

Work reduce_scatter_sum(const Group& group, const at::Tensor& output, const Tensors& inputs) {
  return reduce_scatter(group, output, inputs, Op::SUM);
}
Work reduce_scatter_avg(const Group& group, const at::Tensor& output, const Tensors& inputs) {
  return reduce_scatter(group, output, inputs, Op::AVG);
}
Work reduce_scatter_base_sum(const Group& group, const at::Tensor& output, const at::Tensor& input) {
  return reduce_scatter_base(group, output, input, Op::SUM);
}
Work reduce_scatter_base_avg(const Group& group, const at::Tensor& output, const at::Tensor& input) {
  return reduce_scatter_base(group, output, input, Op::AVG);
}

Work all_to_all(const Group& group, const Tensors& outputs, const Tensors& inputs) {
  Tensors to = outputs;
  Tensors from = inputs;
  return Work(group.c10d()->alltoall(to, from));
}

Work all_to_all_base(const Group& group, const at::Tensor& output, const at::Tensor& input,
                     const std::vector<int64_t>& output_splits, const std::vector<int64_t>& input_splits) {
  at::Tensor to = output;
  at::Tensor from = input;
  std::vector<int64_t> receive = output_splits;
  std::vector<int64_t> send = input_splits;
  return Work(group.c10d()->all_to_all_single(to, from, receive, send));
}

void barrier(const Group& group) { group.c10d()->barrier()->wait(); }

Work send(const Group& group, const at::Tensor& tensor, int to) {
  Tensors tensors{tensor};
  return Work(group.c10d()->send(tensors, to, 0));
}
Work recv(const Group& group, const at::Tensor& tensor, int from) {
  Tensors tensors{tensor};
  return Work(group.c10d()->recv(tensors, from, 0));
}

}  // namespace trireme::comm
