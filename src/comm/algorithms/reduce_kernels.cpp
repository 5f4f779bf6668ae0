#include "comm/algorithms/reduce_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

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

// A few cache lines at a time, so that what was just read is refilled while it is still at hand.
constexpr size_t kRefillBytes = 512;

template <typename Storage, ReduceKind kKind>
void reduce_refill_blocks(void* out, const void* const* in, size_t count, void* slot, const void* next) {
  constexpr size_t kBlock = kRefillBytes / sizeof(Storage);
  const auto* const* inputs = reinterpret_cast<const Storage* const*>(in);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = std::min(kBlock, count - begin);
    const void* at[] = {inputs[0] + begin, inputs[1] + begin};
    reduce_portable<Storage, kKind>(static_cast<Storage*>(out) + begin, at, 2, length);
    std::memcpy(static_cast<Storage*>(slot) + begin, static_cast<const Storage*>(next) + begin,
                length * sizeof(Storage));
  }
}

template <typename Storage>
RefillFunction refill_blocks_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return reduce_refill_blocks<Storage, ReduceKind::kSum>;
    case ReduceKind::kAvg:
      if constexpr (semantics::kIsBool<Storage>) return nullptr;
      return reduce_refill_blocks<Storage, ReduceKind::kAvg>;
    case ReduceKind::kMin:
      return reduce_refill_blocks<Storage, ReduceKind::kMin>;
    case ReduceKind::kMax:
      return reduce_refill_blocks<Storage, ReduceKind::kMax>;
  }
  return nullptr;
}

RefillFunction reduce_refill_function_portable(DType dtype, ReduceKind kind) {
  switch (dtype) {
    case DType::kF16:
      return refill_blocks_of<semantics::Half>(kind);
    case DType::kBF16:
      return refill_blocks_of<semantics::BFloat16>(kind);
    case DType::kF32:
      return refill_blocks_of<float>(kind);
    case DType::kF64:
      return refill_blocks_of<double>(kind);
    case DType::kI32:
      return refill_blocks_of<int32_t>(kind);
    case DType::kI64:
      return refill_blocks_of<int64_t>(kind);
    case DType::kU8:
      return refill_blocks_of<uint8_t>(kind);
    case DType::kBool:
      return refill_blocks_of<semantics::Bool>(kind);
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

RefillFunction reduce_refill_function(DType dtype, ReduceKind kind) {
  if (const RefillFunction fast = reduce_refill_function_avx2(dtype, kind)) return fast;
  return reduce_refill_function_portable(dtype, kind);
}

void copy_and_refill(void* out, void* slot, const void* next, size_t bytes) {
  // A page at a time: long enough for the C library's fast copies, short enough that the refill finds the lines still owned. Line by line
  // was slower here, since every line then has three misses in flight where a reduction in place has two.
  constexpr size_t kBlock = 4096;
  auto* to = static_cast<std::byte*>(out);
  auto* through = static_cast<std::byte*>(slot);
  const auto* from = static_cast<const std::byte*>(next);
  for (size_t i = 0; i < bytes; i += kBlock) {
    const size_t length = std::min(kBlock, bytes - i);
    std::memcpy(to + i, through + i, length);
    std::memcpy(through + i, from + i, length);
  }
}

}  // namespace trireme::comm
