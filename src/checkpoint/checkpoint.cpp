#include "trireme/checkpoint/checkpoint.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/str.h"
#include "checkpoint/folder/folder.h"
#include "trireme/base/error.h"
#include "trireme/comm/busy.h"

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
  // Ranks that wait for this one meanwhile are no hang.
  comm::BusyScope scope("saving a checkpoint", 0);
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
  // What is written is not on disk yet.
  return write_checkpoint(root, std::move(contents), options.keep_last,
                          [&scope](double fraction) { scope.progress(0.99 * fraction); });
}

std::optional<Loaded> load_latest(const std::string& root) {
  const comm::BusyScope scope("loading a checkpoint", -1);
  std::optional<ReadCheckpoint> read = read_latest(root);
  if (!read) return std::nullopt;
  Loaded loaded{{{}, std::move(read->metadata)}, read->step, std::move(read->path)};
  for (const auto& [name, tensor] : read->tensors) loaded.state.tensors.emplace(name, to_tensor(tensor));
  return loaded;
}

}  // namespace trireme::checkpoint
