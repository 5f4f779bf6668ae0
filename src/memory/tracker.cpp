#include "trireme/memory/tracker.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/env.h"
#include "base/torch/torch_compat.h"
#include "memory/track/out_of_memory.h"
#include "memory/tracked_blocks.h"
#include "trireme/base/error.h"

namespace trireme::memory {
namespace {

/// The module of a parameter: what stands before the last dot.
std::string module_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::string{} : name.substr(0, dot);
}

at::Tensor gradient_of(const at::Tensor& parameter) { return parameter.is_leaf() ? parameter.grad() : at::Tensor(); }

class GradientHook final : public torch::autograd::FunctionPostHook {
 public:
  GradientHook(TrackedBlocks& blocks, at::TensorImpl* parameter, uint32_t module)
      : blocks_(blocks), parameter_(parameter), module_(module) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    const at::Tensor parameter(c10::intrusive_ptr<at::TensorImpl>::reclaim_copy(parameter_));
    blocks_.label(parameter.grad(), {Category::kGradients, module_});
    return outputs;
  }

 private:
  TrackedBlocks& blocks_;
  at::TensorImpl* parameter_;  // the hook belongs to a node that keeps it alive
  uint32_t module_;
};

// What an optimizer of LibTorch keeps from step to step. Its classes have no common way to ask for it.

struct OptimizerTensor {
  const void* parameter;  ///< its TensorImpl
  std::string name;       ///< "exp_avg"
  at::Tensor tensor;
};

using Tensors = std::vector<std::pair<const char*, at::Tensor>>;

Tensors tensors_of(const torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  if (const auto* adam = dynamic_cast<const AdamParamState*>(&state))
    return {
        {"exp_avg", adam->exp_avg()}, {"exp_avg_sq", adam->exp_avg_sq()}, {"max_exp_avg_sq", adam->max_exp_avg_sq()}};
  if (const auto* adam = dynamic_cast<const AdamWParamState*>(&state))
    return {
        {"exp_avg", adam->exp_avg()}, {"exp_avg_sq", adam->exp_avg_sq()}, {"max_exp_avg_sq", adam->max_exp_avg_sq()}};
  if (const auto* sgd = dynamic_cast<const SGDParamState*>(&state))
    return {{"momentum_buffer", sgd->momentum_buffer()}};
  if (const auto* rms = dynamic_cast<const RMSpropParamState*>(&state)) {
    return {
        {"square_avg", rms->square_avg()}, {"momentum_buffer", rms->momentum_buffer()}, {"grad_avg", rms->grad_avg()}};
  }
  if (const auto* adagrad = dynamic_cast<const AdagradParamState*>(&state)) return {{"sum", adagrad->sum()}};
  if (const auto* lbfgs = dynamic_cast<const LBFGSParamState*>(&state)) {
    Tensors all = {{"d", lbfgs->d()}, {"H_diag", lbfgs->H_diag()}, {"prev_flat_grad", lbfgs->prev_flat_grad()}};
    for (const at::Tensor& tensor : lbfgs->old_dirs()) all.emplace_back("old_dirs", tensor);
    for (const at::Tensor& tensor : lbfgs->old_stps()) all.emplace_back("old_stps", tensor);
    for (const at::Tensor& tensor : lbfgs->ro()) all.emplace_back("ro", tensor);
    if (const auto& al = lbfgs->al()) {
      for (const at::Tensor& tensor : *al) all.emplace_back("al", tensor);
    }
    return all;
  }
  return {};
}

/// Of Adam, AdamW, SGD, RMSprop, Adagrad and LBFGS; of other optimizers nothing.
std::vector<OptimizerTensor> optimizer_tensors(const torch::optim::Optimizer& optimizer) {
  std::vector<OptimizerTensor> all;
  for (const auto& [parameter, state] : optimizer.state()) {
    if (!state) continue;
    for (auto& [name, tensor] : tensors_of(*state)) {
      if (tensor.defined()) all.push_back({parameter, name, tensor});
    }
  }
  return all;
}

}  // namespace

CommunicationBuffer::CommunicationBuffer(const void* begin, size_t bytes) : begin_(bytes > 0 ? begin : nullptr) {
  if (begin_ == nullptr) return;
  const std::unique_lock lock(tracked().mutex);
  tracked().communication[begin_] = bytes;
  if (tracked().blocks != nullptr) add_communication(*tracked().blocks, begin_, bytes);
}

CommunicationBuffer::~CommunicationBuffer() {
  if (begin_ == nullptr) return;
  const std::unique_lock lock(tracked().mutex);
  tracked().communication.erase(begin_);
  if (tracked().blocks != nullptr) tracked().blocks->table.remove_region(begin_);
}

struct MemoryTracker::Impl {
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    uint32_t module;
    c10::intrusive_ptr<torch::autograd::Node> accumulator;
    uintptr_t hook = 0;
  };
  struct State {
    std::string name;
    at::Tensor tensor;
    uint32_t module;
  };

  TrackedBlocks blocks;
  std::vector<Parameter> parameters;
  std::vector<Parameter> buffers;
  std::vector<const torch::optim::Optimizer*> optimizers;
  std::vector<std::function<NamedTensors()>> states;
  at::CallbackHandle callback = 0;

  [[nodiscard]] std::vector<State> optimizer_state() {
    std::unordered_map<const void*, size_t> by_tensor;
    for (size_t i = 0; i < parameters.size(); ++i) by_tensor.emplace(parameters[i].tensor.unsafeGetTensorImpl(), i);
    std::map<size_t, std::vector<State>> by_parameter;  // in the model's order; the optimizers' is a hash table's
    for (const torch::optim::Optimizer* optimizer : optimizers) {
      for (OptimizerTensor& state : optimizer_tensors(*optimizer)) {
        const auto known = by_tensor.find(state.parameter);
        const size_t at = known == by_tensor.end() ? parameters.size() : known->second;
        const bool named = at < parameters.size();
        by_parameter[at].push_back({(named ? parameters[at].name : "(unnamed)") + "." + state.name, state.tensor,
                                    named ? parameters[at].module : 0});
      }
    }
    std::vector<State> all;
    for (auto& [at, found] : by_parameter) std::move(found.begin(), found.end(), std::back_inserter(all));
    for (const auto& named : states) {
      for (auto& [name, tensor] : named()) {
        if (tensor.defined()) all.push_back({name, tensor, blocks.table.module_index(module_of(name))});
      }
    }
    return all;
  }

  /// Labels what can be known by its identity. Parameters last: what shares their storage is theirs.
  void walk() {
    blocks.forget_the_dead();
    for (const State& state : optimizer_state()) blocks.label(state.tensor, {Category::kOptimizerState, state.module});
    std::unordered_set<const void*> gradients;
    for (const Parameter& parameter : parameters) {
      const at::Tensor gradient = gradient_of(parameter.tensor);
      if (!is_on_cpu(gradient)) continue;
      gradients.insert(base_of(gradient));
      blocks.label(gradient, {Category::kGradients, parameter.module});
    }
    blocks.table.end_loans(gradients);
    for (const auto* kept : {&buffers, &parameters}) {
      for (const Parameter& parameter : *kept)
        blocks.label(parameter.tensor, {Category::kParameters, parameter.module});
    }
  }

  void add_device_use(MemoryReport& report);
};

MemoryTracker::MemoryTracker() : impl_(std::make_unique<Impl>()) {
  const std::unique_lock lock(tracked().mutex);
  if (tracked().blocks != nullptr) {
    throw Error(ErrorKind::kUnavailable,
                "[memory.tracker] another MemoryTracker lives in this process; it counts all tensors of the process. "
                "Use that one, or end it "
                "first.");
  }
  if (!add_cpu_observer(impl_->blocks)) {
    throw Error(ErrorKind::kUnavailable,
                "[memory.tracker] the CPU allocator of this process frees blocks in a way of its own, so tensors "
                "cannot be counted; LibTorch's "
                "own is required.");
  }
  tracked().blocks = &impl_->blocks;
  for (const auto& [begin, bytes] : tracked().communication) add_communication(impl_->blocks, begin, bytes);
  impl_->callback = watch_operators();
}

MemoryTracker::~MemoryTracker() {
  at::removeCallback(impl_->callback);
  for (Impl::Parameter& parameter : impl_->parameters) {
    if (parameter.accumulator) parameter.accumulator->del_post_hook(parameter.hook);
  }
  remove_cpu_observer(impl_->blocks);
  const std::unique_lock lock(tracked().mutex);
  tracked().blocks = nullptr;
}

void MemoryTracker::add_parameters(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.defined()) continue;
    const uint32_t module = impl_->blocks.table.module_index(module_of(name));
    Impl::Parameter parameter{name, tensor, module, nullptr, 0};
    if (tensor.requires_grad() && tensor.is_leaf()) {
      parameter.accumulator = torch::autograd::impl::grad_accumulator(tensor);
      parameter.hook = parameter.accumulator->add_post_hook(
          std::make_unique<GradientHook>(impl_->blocks, tensor.unsafeGetTensorImpl(), module));
    }
    impl_->parameters.push_back(std::move(parameter));
  }
  impl_->walk();
}

void MemoryTracker::add_buffers(const NamedTensors& buffers) {
  for (const auto& [name, tensor] : buffers) {
    if (tensor.defined())
      impl_->buffers.push_back({name, tensor, impl_->blocks.table.module_index(module_of(name)), nullptr, 0});
  }
  impl_->walk();
}

void MemoryTracker::add_optimizer(const torch::optim::Optimizer& optimizer) {
  impl_->optimizers.push_back(&optimizer);
  impl_->walk();
}

void MemoryTracker::add_optimizer_state(std::function<NamedTensors()> state) {
  impl_->states.push_back(std::move(state));
  impl_->walk();
}

void MemoryTracker::end_step() {
  impl_->walk();
  impl_->blocks.table.end_step();
}

void MemoryTracker::reset_peak() {
  impl_->walk();
  impl_->blocks.table.reset_peak();
}

MemoryReport MemoryTracker::report() {
  impl_->walk();
  MemoryReport report = impl_->blocks.table.report();
  report.resident = resident_bytes();
  impl_->add_device_use(report);
  return report;
}

std::vector<TensorRow> MemoryTracker::tensors() {
  std::vector<TensorRow> rows;
  std::unordered_map<const void*, std::string> seen;
  const auto add = [&](const std::string& name, Category category, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    TensorRow row;
    row.name = name;
    row.category = category;
    row.shape = tensor.sizes().vec();
    row.dtype = c10::getDtypeNames(tensor.scalar_type()).first;
    row.device = tensor.device().str();
    if (tensor.has_storage()) {
      const auto [first, is_new] = seen.emplace(tensor.storage().unsafeGetStorageImpl(), name);
      if (is_new) {
        row.bytes = static_cast<int64_t>(tensor.storage().nbytes());
      } else {
        row.shared_with = first->second;
      }
    }
    rows.push_back(std::move(row));
  };
  for (const auto& parameter : impl_->parameters) add(parameter.name, Category::kParameters, parameter.tensor);
  for (const auto& buffer : impl_->buffers) add(buffer.name, Category::kParameters, buffer.tensor);
  for (const auto& parameter : impl_->parameters)
    add(parameter.name + ".grad", Category::kGradients, gradient_of(parameter.tensor));
  for (const auto& state : impl_->optimizer_state()) add(state.name, Category::kOptimizerState, state.tensor);
  return rows;
}

void MemoryTracker::begin_step() { (void)impl_->blocks.take_failure(); }

void MemoryTracker::rethrow(const std::exception_ptr& thrown) {
  std::string words;
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOutOfMemory) throw;
    words = error.what();
  } catch (const c10::Error& error) {
    if (kind_of(error) != ErrorKind::kOutOfMemory) throw;
    words = error.what_without_backtrace();
  } catch (const std::bad_alloc&) {
    words = "std::bad_alloc";
  }
  OutOfMemory failure;
  if (auto refused = impl_->blocks.take_failure()) {
    failure = *std::move(refused);
    impl_->add_device_use(failure.held);
  } else {
    failure.held = report();
    failure.at_that_moment = false;
    look_at_limits(failure);
  }
  const auto number = [](const char* name, int otherwise) {
    const char* text = env_value(name);
    return text == nullptr ? otherwise
                           : std::atoi(text);  // NOLINT(cert-err34-c): for a message; the launcher has checked it
  };
  failure.rank = number("RANK", 0);
  failure.world_size = std::max(1, number("WORLD_SIZE", 1));
  failure.error = words.substr(0, words.find('\n'));
  try {
    std::rethrow_exception(thrown);
  } catch (...) {
    std::throw_with_nested(Error(ErrorKind::kOutOfMemory, out_of_memory_text(failure)));
  }
}

// A GPU's allocator counts for itself, and LibTorch has one interface to all of them.
void MemoryTracker::Impl::add_device_use(MemoryReport& report) {
  std::map<at::Device, std::pair<MemoryUse, std::unordered_set<const void*>>, bool (*)(at::Device, at::Device)> known(
      [](at::Device a, at::Device b) { return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index()); });
  const auto add = [&](const at::Tensor& tensor, Category category) {
    if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cuda()) return;
    auto& [use, storages] = known[tensor.device()];
    if (storages.insert(base_of(tensor)).second)
      use.bytes[static_cast<size_t>(category)] += static_cast<int64_t>(tensor.storage().nbytes());
  };
  for (const auto* kept : {&parameters, &buffers}) {
    for (const Parameter& parameter : *kept) {
      add(parameter.tensor, Category::kParameters);
      add(gradient_of(parameter.tensor), Category::kGradients);
    }
  }
  for (const State& state : optimizer_state()) add(state.tensor, Category::kOptimizerState);
  for (const auto& [device, found] : known) {
    const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    DeviceUse use;
    use.device = device.str();
    use.known = found.first;
    use.allocated = stats.allocated_bytes[kAll].current;
    use.peak_allocated = stats.allocated_bytes[kAll].peak;
    use.reserved = stats.reserved_bytes[kAll].current;
    use.inactive_split = stats.inactive_split_bytes[kAll].current;
    report.devices.push_back(std::move(use));
  }
}

}  // namespace trireme::memory
