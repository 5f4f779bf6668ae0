// Data-parallel training of a torch::nn module: every rank holds the whole model and a part of the batch; gradients
// are averaged over the group while backward runs.
//
//   trireme::DistributedDataParallel<Net> model(world, Net(...));
//   torch::optim::SGD optimizer(model.parameters(), 0.1);
//   loss(model.forward(x), y).backward();   // .grad holds the mean over ranks when backward returns
//   optimizer.step();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme::parallel {

/// Where gradients lie while they are reduced. All modes give equal values, bit for bit but for one thing: kBucketView
/// adds to a zero, so that a gradient of -0.0 becomes +0.0 (0.0 + -0.0 is 0.0).
enum class GradientMode {
  kStaged,      ///< as autograd made them; copied into shared memory when their bucket is complete
  kBucketView,  ///< .grad is preset before forward to a zeroed view of its bucket, and added to there
  /// Born in shared memory and reduced where they lie; those that are not (another size or layout than the parameter,
  /// a .grad made elsewhere) are staged. Puts an allocator in front of LibTorch's CPU allocator for the whole process,
  /// which serves requests of a parameter's size during backward.
  kArena,
};

struct DdpOptions {
  /// Bytes of gradients after which a bucket is closed and reduced while backward goes on. The first bucket is smaller,
  /// so that communication starts early. 1 .. 2^40. Defaults as PyTorch's: 1 MiB, then 25 MiB. Smaller buckets start
  /// earlier, larger ones have less overhead; 1 makes one bucket per parameter. Results do not depend on it.
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{25} << 20;
  /// Before each forward in training mode, outside no_sync(), rank 0's buffers (BatchNorm statistics) replace those of
  /// the other ranks. Default true, as PyTorch's. In evaluation mode nothing is sent, so one rank may evaluate alone;
  /// call sync_buffers() first where all ranks evaluate.
  bool broadcast_buffers = true;
  /// Accept parameters that get no gradient in a backward: zeros are reduced in their place, and a gradient that no
  /// rank has stays undefined. Default false: such a parameter is an error that names it. Costs one small all_reduce
  /// per step, and the buckets of such parameters are reduced at the end of backward only.
  bool find_unused_parameters = false;
  /// Every so many training steps, the values of parameters and buffers are hashed and compared over the ranks; the first that differs is an
  /// error on every rank. 0 (default): never. Costs one reading of the model and 16 bytes a rank each time.
  int64_t check_values_every = 0;
  /// Default kArena: the fastest on the MLPs of `trireme bench ddp`. kStaged leaves LibTorch's allocator alone.
  GradientMode gradients = GradientMode::kArena;
};

/// Sets options by name from text ("bucket_bytes" = "26214400"), as configuration files and flags give them. Throws
/// kInvalidArgument naming the option, the text and what is allowed. [local]
void set_ddp_option(DdpOptions& options, const std::string& name, const std::string& text);

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// What does not depend on the module's type; see DistributedDataParallel.
class DdpEngine {
 public:
  DdpEngine(comm::Group group, NamedTensors parameters, NamedTensors buffers, const DdpOptions& options);
  ~DdpEngine();
  DdpEngine(const DdpEngine&) = delete;
  DdpEngine& operator=(const DdpEngine&) = delete;

  void before_forward(bool training);
  /// Backward will start from this output of forward.
  void watch(const at::Tensor& output);
  void sync_buffers();
  void begin_no_sync() noexcept;
  void end_no_sync() noexcept;
  [[nodiscard]] const comm::Group& group() const noexcept;
  [[nodiscard]] const DdpOptions& options() const noexcept;

  struct Stats {
    int64_t num_buckets = 0;
    int64_t gradient_bytes = 0;  ///< of one step
    bool rebuilt = false;        ///< buckets follow the real order of gradients
    uint64_t num_reductions = 0;
    int64_t arena_bytes = 0;  ///< of them in shared memory already, in the last synchronised backward
    /// Bytes that this rank read and wrote for gradients in that backward, beyond what backward itself touches.
    int64_t bytes_touched = 0;
  };
  [[nodiscard]] Stats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// While it lives, backward adds up gradients locally and communicates nothing. The first backward after it reduces
/// all that was added up.
class [[nodiscard]] NoSyncGuard {
 public:
  explicit NoSyncGuard(DdpEngine& engine) : engine_(&engine) { engine_->begin_no_sync(); }
  ~NoSyncGuard() { engine_->end_no_sync(); }
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  DdpEngine* engine_;
};

namespace detail {

// Outputs of other types work too; backward then notices them a little later. Declared first, since they call each other.
inline void watch(DdpEngine& engine, const at::Tensor& output) { engine.watch(output); }
template <typename... Items>
void watch(DdpEngine& engine, const std::tuple<Items...>& outputs);
template <typename A, typename B>
void watch(DdpEngine& engine, const std::pair<A, B>& outputs);
template <typename Item>
void watch(DdpEngine& engine, const std::vector<Item>& outputs);
template <typename Other>
  requires(!std::is_convertible_v<const Other&, const at::Tensor&>)
void watch(DdpEngine& /*engine*/, const Other& /*output*/) {}

template <typename... Items>
void watch(DdpEngine& engine, const std::tuple<Items...>& outputs) {
  std::apply([&engine](const auto&... output) { (watch(engine, output), ...); }, outputs);
}
template <typename A, typename B>
void watch(DdpEngine& engine, const std::pair<A, B>& outputs) {
  watch(engine, outputs.first);
  watch(engine, outputs.second);
}
template <typename Item>
void watch(DdpEngine& engine, const std::vector<Item>& outputs) {
  for (const Item& output : outputs) watch(engine, output);
}

template <typename Dict>
NamedTensors to_named_tensors(const Dict& dict) {
  NamedTensors named;
  for (const auto& item : dict) named.emplace_back(item.key(), item.value());
  return named;
}

}  // namespace detail

/// Purpose       Trains `Module` on all ranks of a group as if one process saw the whole batch, when each rank's loss
///               is the mean over its equally large part.
/// Construction  [collective, blocking] Checks that parameters and buffers agree over ranks in name, shape and dtype
///               (kMismatch names the first that differs and both sides), then sends rank 0's values to all.
/// Invariants    After a backward outside no_sync(), .grad of every parameter is bitwise equal on all ranks: the sum
///               in rank order, divided once by n. What was in .grad before takes part: clear it between steps.
///               Parameters keep their names and identity: model.module() is the user's own, so state-dict keys,
///               optimizers and checkpoints do not change.
/// Errors        backward throws kInvalidArgument naming the parameters that got no gradient (see
///               find_unused_parameters), and kMismatch, kPeerLost and kTimeout of communication. forward throws
///               kUnsupported when a parameter has changed its dtype, device or size since, or needs a gradient only
///               now; parameters that the module registers later are not known and stay each rank's own. After an exception
///               from elsewhere in backward the object can be used again, if all ranks saw it at the same point.
/// Thread safety As the module: one forward or backward at a time.
/// Lifetime      Must outlive the backward of every graph that was made through it.
/// Cost          for S bytes of gradients, per step and rank: kArena S read and S written; kStaged S copied, n S read
///               and S written. All but the last bucket overlaps with backward.
template <typename Module>
class DistributedDataParallel {
 public:
  /// `module` is a module holder (torch::nn::Sequential, or a user's made by TORCH_MODULE) or a std::shared_ptr to one.
  /// Parameters that need no gradient now are sent once and then left alone: they must not need one later.
  DistributedDataParallel(comm::Group group, Module module, DdpOptions options = {})
      : module_(std::move(module)),
        engine_(std::make_unique<DdpEngine>(std::move(group), detail::to_named_tensors(module_->named_parameters()),
                                            detail::to_named_tensors(module_->named_buffers()), options)) {}

  /// module->forward(arguments...). Collective where broadcast_buffers applies. The object itself is a function too.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    engine_->before_forward(module_->is_training());
    auto result = module_->forward(std::forward<Arguments>(arguments)...);
    detail::watch(*engine_, result);
    return result;
  }
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  /// The user's module: model->train(), model->to(...). Forward must go through the wrapper, not through this.
  [[nodiscard]] auto* operator->() { return &*module_; }
  [[nodiscard]] const auto* operator->() const { return &*module_; }
  [[nodiscard]] Module& module() noexcept { return module_; }
  [[nodiscard]] const Module& module() const noexcept { return module_; }
  [[nodiscard]] std::vector<at::Tensor> parameters() const { return module_->parameters(); }

  /// { auto local = model.no_sync(); loss.backward(); }  // add up without communication [local]
  NoSyncGuard no_sync() { return NoSyncGuard(*engine_); }

  /// Replaces all buffers by rank 0's. [collective, blocking]
  void sync_buffers() { engine_->sync_buffers(); }

  [[nodiscard]] const comm::Group& group() const noexcept { return engine_->group(); }
  [[nodiscard]] const DdpOptions& options() const noexcept { return engine_->options(); }
  [[nodiscard]] DdpEngine::Stats stats() const { return engine_->stats(); }

 private:
  Module module_;
  std::unique_ptr<DdpEngine> engine_;  // destroyed first: its hooks refer to the parameters
};

}  // namespace trireme::parallel
