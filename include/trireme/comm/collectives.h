// Collectives over a Group. n is group.size(), S the bytes of the tensor on one rank.
//
// [collective]: all ranks of the group must call it, in the same order. [local]: any rank may.
// [queued]: returns before the work is done; wait() on the result before reading or changing the tensors.
// [blocking]: done on return.
//
// For all of them:
// Shape    any, contiguous; the same on all ranks unless said otherwise. A tensor that is not contiguous is refused:
//          a silent copy would hide its cost and, for results, be lost.
// Dtype    f16 bf16 f32 f64 i32 i64 u8 bool, the same on all ranks. Reductions of f16 and bf16 are done in f32 and
//          rounded once; AVG is for floating-point dtypes; a bool sum is OR. More in docs/numerics.md.
// Result   bitwise equal on all ranks; every element is combined in rank order.
// n == 1   returns its input (gathers copy it).
// Errors   kInvalidArgument    shape, dtype, device or memory layout as above, or a rank out of range.
//          kMismatch           ranks called different things; raised on every rank, with both calls.
//          kPeerLost           a rank died; the group is unusable, make a new one.
//          kTimeout            nothing within group.timeout(); names the late ranks.
//          The first is thrown at once, the others by wait().
// Threads  one collective at a time per group; different groups may overlap.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "trireme/comm/group.h"

namespace c10d {
class Work;
}

namespace trireme::comm {

/// Purpose       What is left to wait for. A value; the default one is done.
/// Thread safety As a smart pointer.
/// Lifetime      May be dropped without wait(): the operation is still carried out, on the group's progress thread, as
///               long as the group lives.
/// Callbacks     of the c10d object's Future may issue further work on the group, wait() for it, and drop the group. They must not block on
///               the Future of unfinished work of this group, since they may run on the very thread that would carry it out.
class Work {
 public:
  Work();
  explicit Work(c10::intrusive_ptr<c10d::Work> work);
  ~Work();
  Work(const Work&);
  Work(Work&&) noexcept;
  Work& operator=(const Work&);
  Work& operator=(Work&&) noexcept;

  /// Executes what is due on this thread, or waits for it; throws its error. [blocking]
  void wait();
  /// Whether it is done, with or without success. [local]
  [[nodiscard]] bool done() const;
  /// The c10d object behind it, or null.
  [[nodiscard]] const c10::intrusive_ptr<c10d::Work>& c10d() const noexcept { return work_; }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

/// Replaces `tensor` on every rank by the elementwise sum, mean, minimum or maximum. [collective, queued]
/// Cost     2 ranks or small: S written to shared memory and (n-1) S read; else about 2 S read.
[[nodiscard]] Work all_reduce_sum(const Group& group, const at::Tensor& tensor);
[[nodiscard]] Work all_reduce_avg(const Group& group, const at::Tensor& tensor);
[[nodiscard]] Work all_reduce_min(const Group& group, const at::Tensor& tensor);
[[nodiscard]] Work all_reduce_max(const Group& group, const at::Tensor& tensor);

/// The same for several tensors of one dtype as one operation. Shapes are compared by total count only.
[[nodiscard]] Work all_reduce_sum(const Group& group, at::TensorList tensors);
[[nodiscard]] Work all_reduce_avg(const Group& group, at::TensorList tensors);

/// Copies `tensor` of rank `root` to all. [collective, queued] Cost: S written once, S read per rank.
[[nodiscard]] Work broadcast(const Group& group, const at::Tensor& tensor, int root);

/// outputs[r] = input of rank r. [collective, queued]
/// Shape    outputs: n tensors, each as `input`.
/// Cost     S written to shared memory and (n-1) S read; large ones are read where they lie, if the kernel allows it.
[[nodiscard]] Work all_gather(const Group& group, const std::vector<at::Tensor>& outputs, const at::Tensor& input);

/// The same into one tensor of n * input.numel() elements, rank after rank.
[[nodiscard]] Work all_gather_base(const Group& group, const at::Tensor& output, const at::Tensor& input);

/// output = sum (or mean) over ranks of their inputs[rank()]. [collective, queued]
/// Shape    inputs: n tensors, each as `output`.
/// Cost     S bytes of all inputs: (n-1)/n S written to shared memory, as much read.
[[nodiscard]] Work reduce_scatter_sum(const Group& group, const at::Tensor& output,
                                      const std::vector<at::Tensor>& inputs);
[[nodiscard]] Work reduce_scatter_avg(const Group& group, const at::Tensor& output,
                                      const std::vector<at::Tensor>& inputs);

/// The same from one tensor of n * output.numel() elements, rank after rank.
[[nodiscard]] Work reduce_scatter_base_sum(const Group& group, const at::Tensor& output, const at::Tensor& input);
[[nodiscard]] Work reduce_scatter_base_avg(const Group& group, const at::Tensor& output, const at::Tensor& input);

/// Sends inputs[r] to rank r and receives outputs[r] from it. [collective, queued]
/// Shape    inputs[r] here and outputs[rank()] on rank r have equal numel; sizes may differ by pair, 0 too.
///          Inputs and outputs must not overlap: kInvalidArgument.
/// Cost     S bytes of all inputs, own part left out: S written to shared memory and as much read as is received; large parts are read where
///          they lie, if the kernel allows it.
[[nodiscard]] Work all_to_all(const Group& group, const std::vector<at::Tensor>& outputs,
                              const std::vector<at::Tensor>& inputs);

/// The same along dim 0 of one tensor each; empty splits mean equal parts.
[[nodiscard]] Work all_to_all_base(const Group& group, const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>& output_splits = {},
                                   const std::vector<int64_t>& input_splits = {});

/// Returns when all ranks have called it. [collective, blocking] Cost: one cache line written, n - 1 read; no system call when all come at once.
void barrier(const Group& group);

/// Point to point, matched in order per (sender, receiver). Every (peer, direction) has a lane of its own: a waiting
/// receive does not hold up the send that the peer waits for. [queued]
/// Shape    any, contiguous; numel and dtype as at the other end.
/// Cost     S written to shared memory and S read, in pieces of 128 KiB. A send of up to two pieces in flight does not wait for its receiver;
///          each direction to a peer takes a thread of its own when it is first used.
/// Errors   kInvalidArgument  `to` or `from` is this rank or out of range.   kMismatch  the ends differ; on both, and on every later call.
[[nodiscard]] Work send(const Group& group, const at::Tensor& tensor, int to);
[[nodiscard]] Work recv(const Group& group, const at::Tensor& tensor, int from);

}  // namespace trireme::comm
