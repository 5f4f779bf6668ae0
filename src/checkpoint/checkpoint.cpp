#include "trireme/checkpoint/checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/nn/module.h>
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/str.h"
#include "checkpoint/folder/folder.h"
#include "checkpoint/state.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

using safetensors::Dtype;

constexpr std::pair<at::ScalarType, Dtype> kDtypes[] = {
    {at::kBool, Dtype::kBool}, {at::kByte, Dtype::kU8},    {at::kChar, Dtype::kI8},  {at::kShort, Dtype::kI16},
    {at::kInt, Dtype::kI32},   {at::kLong, Dtype::kI64},   {at::kHalf, Dtype::kF16}, {at::kBFloat16, Dtype::kBf16},
    {at::kFloat, Dtype::kF32}, {at::kDouble, Dtype::kF64},
};

Dtype dtype_of(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) {
    throw Error(ErrorKind::kInvalidArgument,
                str("[checkpoint.save] tensor '", name, "' is ", tensor.defined() ? "sparse" : "undefined",
                    "; a dense one is required. Leave it out or make it dense."));
  }
  for (const auto& [ours, theirs] : kDtypes) {
    if (tensor.scalar_type() == ours) return theirs;
  }
  throw Error(ErrorKind::kInvalidArgument,
              str("[checkpoint.save] tensor '", name, "' has dtype ", c10::toString(tensor.scalar_type()),
                  "; bool, u8, i8, i16, i32, i64, f16, bf16, f32 or f64 is required. Convert it."));
}

at::ScalarType scalar_type_of(Dtype dtype) {
  for (const auto& [ours, theirs] : kDtypes) {
    if (dtype == theirs) return ours;
  }
  throw Error(ErrorKind::kInternal, "[checkpoint.load] a safetensors dtype without a scalar type. Please report it.");
}

at::Tensor to_tensor(const ReadCheckpoint::Tensor& read) {
  const at::TensorOptions options = at::TensorOptions(scalar_type_of(read.view.dtype)).device(at::kCPU);
  const auto address = reinterpret_cast<uintptr_t>(read.view.bytes.data());
  if (read.view.bytes.empty() || address % safetensors::size_of(read.view.dtype) != 0) {
    // Files of other writers may place a tensor at an odd address.
    at::Tensor tensor = at::empty(read.view.shape, options);
    std::copy(read.view.bytes.begin(), read.view.bytes.end(), static_cast<std::byte*>(tensor.mutable_data_ptr()));
    return tensor;
  }
  return at::from_blob(
      const_cast<std::byte*>(read.view.bytes.data()), read.view.shape, [file = read.file](void*) {}, options);
}

}  // namespace

std::string save(const std::string& root, int64_t step, const State& state, const SaveOptions& options) {
  Contents contents;
  contents.step = step;
  contents.metadata = state.metadata;
  std::vector<at::Tensor> row_major;  // keeps copies, where one was needed
  for (const auto& [name, tensor] : state.tensors) {
    const Dtype dtype = dtype_of(name, tensor);
    const at::Tensor& kept = row_major.emplace_back(tensor.detach().cpu().resolve_neg().contiguous());
    contents.tensors.push_back(
        {name, dtype, kept.sizes().vec(), {static_cast<const std::byte*>(kept.const_data_ptr()), kept.nbytes()}});
  }
  return write_checkpoint(root, std::move(contents), options.keep_last);
}

std::optional<Loaded> load_latest(const std::string& root) {
  std::optional<ReadCheckpoint> read = read_latest(root);
  if (!read) return std::nullopt;
  Loaded loaded{{{}, std::move(read->metadata)}, read->step, std::move(read->path)};
  for (const auto& [name, tensor] : read->tensors) loaded.state.tensors.emplace(name, to_tensor(tensor));
  return loaded;
}

}  // namespace trireme::checkpoint

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
