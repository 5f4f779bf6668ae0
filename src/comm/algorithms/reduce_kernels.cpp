#include "comm/algorithms/reduce_kernels.h"

#include "comm/algorithms/reduce_semantics.h"

namespace trireme::comm {
namespace {

template <typename Storage, ReduceKind kKind>
void reduce_portable(void* out, const void* const* in, int num_inputs, size_t count) {
  auto* result = static_cast<Storage*>(out);
  const auto* const* inputs = reinterpret_cast<const Storage* const*>(in);
  for (size_t i = 0; i < count; ++i) result[i] = semantics::reduce_element<Storage, kKind>(inputs, num_inputs, i);
}

template <typename Storage>
ReduceFunction portable_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return reduce_portable<Storage, ReduceKind::kSum>;
    case ReduceKind::kAvg:
      if constexpr (semantics::kIsBool<Storage>) return nullptr;
      return reduce_portable<Storage, ReduceKind::kAvg>;
    case ReduceKind::kMin:
      return reduce_portable<Storage, ReduceKind::kMin>;
    case ReduceKind::kMax:
      return reduce_portable<Storage, ReduceKind::kMax>;
  }
  return nullptr;
}

}  // namespace

ReduceFunction reduce_function_portable(DType dtype, ReduceKind kind) {
  switch (dtype) {
    case DType::kF16:
      return portable_of<semantics::Half>(kind);
    case DType::kBF16:
      return portable_of<semantics::BFloat16>(kind);
    case DType::kF32:
      return portable_of<float>(kind);
    case DType::kF64:
      return portable_of<double>(kind);
    case DType::kI32:
      return portable_of<int32_t>(kind);
    case DType::kI64:
      return portable_of<int64_t>(kind);
    case DType::kU8:
      return portable_of<uint8_t>(kind);
    case DType::kBool:
      return portable_of<semantics::Bool>(kind);
  }
  return nullptr;
}

ReduceFunction reduce_function(DType dtype, ReduceKind kind) {
  if (const ReduceFunction fast = reduce_function_avx2(dtype, kind)) return fast;
  return reduce_function_portable(dtype, kind);
}

}  // namespace trireme::comm
