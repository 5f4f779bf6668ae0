// Who holds the memory of a training loop: parameters, gradients, optimizer state, activations, communication, and which module.
//
//   trireme::memory::MemoryTracker tracker;
//   tracker.add_module(*model);
//   tracker.add_optimizer(adam);
//   for (...) {
//     adam.zero_grad(); loss(model->forward(x), y).backward(); adam.step();
//     tracker.end_step();
//   }
//   std::cout << tracker.report().text() << tracker.report().modules_text() << memory::tensor_table(tracker.tensors());
//
// How a block's category is found:
//   parameters, gradients, optimizer state   exact, by the identity of the storage: parameters when they are added, gradients as soon as autograd
//       has set .grad, optimizer state (Adam, AdamW, SGD, RMSprop, Adagrad, LBFGS) when report() or end_step() walks it. A label holds from the block's
//       birth on, so highest values are right too, if the walk comes before the end of the step in which the state was made.
//   communication                            registered buffers; DistributedDataParallel registers its own. A gradient that lies in one counts
//       as gradient, and the rest of the buffer as communication.
//   activations                              what an operator allocates outside backward when an input is an activation or needs a gradient, or
//       when it combines a parameter with data (so with no_grad too); gradients and optimizer state among the inputs make it an update and so
//       not one. Workspaces of operators are included while they live. The module is that of the parameter, else that of the input.
//   other                                    the rest: inputs, temporaries of backward, gradients of activations, recomputed activations.
// Tensors made before the tracker are known if they are parameters, gradients or optimizer state; others are not counted.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/memory/memory_report.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace trireme::memory {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Memory that communication holds beside LibTorch's allocator, for as long as this object lives. Counts from now on for every tracker. Threads: any.
class CommunicationBuffer {
 public:
  CommunicationBuffer(const void* begin, size_t bytes);
  ~CommunicationBuffer();
  CommunicationBuffer(CommunicationBuffer&& other) noexcept : begin_(std::exchange(other.begin_, nullptr)) {}
  CommunicationBuffer& operator=(CommunicationBuffer&&) = delete;
  CommunicationBuffer(const CommunicationBuffer&) = delete;
  CommunicationBuffer& operator=(const CommunicationBuffer&) = delete;

 private:
  const void* begin_;
};

/// Purpose        Counts the CPU tensors of the whole process by category and module from its construction on; of GPUs the device's own count
///                and the parameters, gradients and optimizer state that lie there.
/// Errors         kUnavailable  another tracker lives, or the process's CPU allocator cannot be watched.
/// Thread safety  blocks are counted on any thread; members from one thread at a time, outside backward.
/// Lifetime       keeps the parameters it was given alive. Optimizers must outlive it.
/// Cost           a look-up of its inputs an operator, an insert and 16 bytes an allocation. Afterwards an indirect call
///                an allocation.
class MemoryTracker {
 public:
  MemoryTracker();
  ~MemoryTracker();
  MemoryTracker(const MemoryTracker&) = delete;
  MemoryTracker& operator=(const MemoryTracker&) = delete;

  /// Parameters and buffers of a torch::nn::Module, by their names; `prefix` goes before them ("encoder.").
  template <typename Module>
  void add_module(const Module& module, const std::string& prefix = "") {
    NamedTensors parameters;
    NamedTensors buffers;
    for (const auto& item : module.named_parameters()) parameters.emplace_back(prefix + item.key(), item.value());
    for (const auto& item : module.named_buffers()) buffers.emplace_back(prefix + item.key(), item.value());
    add_parameters(parameters);
    add_buffers(buffers);
  }
  void add_parameters(const NamedTensors& parameters);
  void add_buffers(const NamedTensors& buffers);
  void add_optimizer(const torch::optim::Optimizer& optimizer);
  /// The state of an optimizer that is none of LibTorch's; called whenever state is walked.
  void add_optimizer_state(std::function<NamedTensors()> state);

  /// Ends a step: walks gradients and optimizer state.
  void end_step();
  /// Highest values begin anew.
  void reset_peak();
  [[nodiscard]] MemoryReport report();
  /// Parameters, buffers, gradients and optimizer state, in this order.
  [[nodiscard]] std::vector<TensorRow> tensors();

  /// Calls `step()`, then end_step(). When memory runs out in it (CPU or GPU), throws Error(kOutOfMemory) that says who held what at that moment, how
  /// fragmented it was, and the three changes that would save most, with their bytes; the allocator's own exception is nested in it. Other
  /// exceptions pass as they are.
  template <typename Step>
  void run_step(Step&& step) {
    begin_step();
    try {
      std::forward<Step>(step)();
    } catch (...) {
      rethrow(std::current_exception());
    }
    end_step();
  }

 private:
  struct Impl;
  void begin_step();
  [[noreturn]] void rethrow(const std::exception_ptr& failure);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::memory
