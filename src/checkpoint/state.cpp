#include "checkpoint/state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include <mutex>
#include <utility>
#include <vector>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

constexpr const char* kModelPrefix = "model.";
constexpr const char* kCpuGenerator = "rng.cpu";

std::string describe(const at::Tensor& tensor) {
  return str(c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "]");
}

NamedParameters tensors_of(const torch::nn::Module& module) {
  NamedParameters tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  std::erase_if(tensors, [](const auto& named) { return !named.second.defined(); });
  return tensors;
}

}  // namespace

const at::Tensor& Lookup::take(const std::string& name, const at::Tensor& target) {
  const auto found = state_.tensors.find(prefix_ + name);
  if (found == state_.tensors.end()) {
    throw Error(ErrorKind::kMismatch,
                str("[checkpoint.restore] the checkpoint has no tensor '", prefix_, name, "'; the program needs it as ",
                    describe(target), ". Load a checkpoint of the same model and optimizer."));
  }
  if (found->second.sizes() != target.sizes() || found->second.scalar_type() != target.scalar_type()) {
    throw Error(ErrorKind::kMismatch, str("[checkpoint.restore] tensor '", prefix_, name, "' is ",
                                          describe(found->second), " in the checkpoint; the program needs ",
                                          describe(target), ". Load a checkpoint of the same model and optimizer."));
  }
  taken_.insert(found->first);
  return found->second;
}

void Lookup::require_all_taken() const {
  for (auto item = state_.tensors.lower_bound(prefix_); item != state_.tensors.end(); ++item) {
    if (!item->first.starts_with(prefix_)) break;
    if (!taken_.contains(item->first)) {
      throw Error(ErrorKind::kMismatch,
                  str("[checkpoint.restore] the checkpoint has a tensor '", item->first, "' (", describe(item->second),
                      ") that the program has no place for. Load a "
                      "checkpoint of the same model and optimizer, or erase it from the state."));
    }
  }
}

void add_module_state(State& state, const torch::nn::Module& module) {
  for (const auto& [name, tensor] : tensors_of(module)) state.tensors[kModelPrefix + name] = tensor.detach();
}

void restore_module_state(const State& state, torch::nn::Module& module) {
  Lookup lookup(state, kModelPrefix);
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, tensor] : tensors_of(module)) copies.emplace_back(tensor, lookup.take(name, tensor));
  lookup.require_all_taken();
  const at::NoGradGuard no_grad;
  for (auto& [target, source] : copies) target.copy_(source);
}

void add_rng_state(State& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  state.tensors[kCpuGenerator] = generator.get_state().clone();
}

void restore_rng_state(const State& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  Lookup lookup(state, "");
  // A clone: set_state wants a tensor of its own kind of memory, and reads it as a plain structure.
  generator.set_state(lookup.take(kCpuGenerator, generator.get_state()).clone());
}

}  // namespace trireme::checkpoint
