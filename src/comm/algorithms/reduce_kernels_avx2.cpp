// AVX2 kernels, bitwise equal to the portable ones. Compiled with -mavx2 -mf16c and used only where the processor has both.
//
// GCC may swap the operands of an addition, and of two NaNs the first operand's payload survives; so a vector whose result holds a NaN
// is redone by the portable step. That costs a compare and a branch never taken in healthy data, both hidden behind memory.

#include "comm/algorithms/reduce_kernels.h"

#if defined(__x86_64__) && defined(__AVX2__) && defined(__F16C__)

#include <immintrin.h>

#include <cstring>

#include "comm/algorithms/reduce_semantics.h"

namespace trireme::comm {
namespace {

using semantics::BFloat16;
using semantics::Half;

// A pack is 8 floats or 4 doubles. The primary template holds what f32, f16 and bf16 share: they are combined as f32.
template <typename Storage>
struct Pack {
  using Vector = __m256;
  using Lane = float;
  static constexpr size_t kWidth = 8;
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  // minps returns its second operand for NaN and for equal values, which is why the sum so far comes second.
  static Vector min(Vector sum, Vector next) { return _mm256_min_ps(next, sum); }
  static Vector max(Vector sum, Vector next) { return _mm256_max_ps(next, sum); }
  static Vector divide(Vector a, int n) { return _mm256_div_ps(a, _mm256_set1_ps(static_cast<float>(n))); }
  static bool any_nan(Vector a, Vector b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0; }
  static void to_lanes(Lane* lanes, Vector v) { _mm256_storeu_ps(lanes, v); }
  static Vector from_lanes(const Lane* lanes) { return _mm256_loadu_ps(lanes); }

  static Vector load(const Storage* p) {
    if constexpr (std::is_same_v<Storage, Half>) {
      return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    } else if constexpr (std::is_same_v<Storage, BFloat16>) {
      return _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
    } else {
      return _mm256_loadu_ps(p);
    }
  }
  static void store(Storage* p, Vector v) {
    if constexpr (std::is_same_v<Storage, Half>) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                       _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else if constexpr (std::is_same_v<Storage, BFloat16>) {
      if (any_nan(v, v)) [[unlikely]] {
        alignas(32) float lanes[kWidth];
        to_lanes(lanes, v);
        for (size_t i = 0; i < kWidth; ++i) p[i] = semantics::narrow_bf16(lanes[i]);
        return;
      }
      const __m256i bits = _mm256_castps_si256(v);
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      const __m256i rounded =
          _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
      const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0xd8);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
    } else {
      _mm256_storeu_ps(p, v);
    }
  }
};

template <>
struct Pack<double> {
  using Vector = __m256d;
  using Lane = double;
  static constexpr size_t kWidth = 4;
  static Vector add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  static Vector min(Vector sum, Vector next) { return _mm256_min_pd(next, sum); }
  static Vector max(Vector sum, Vector next) { return _mm256_max_pd(next, sum); }
  static Vector divide(Vector a, int n) { return _mm256_div_pd(a, _mm256_set1_pd(n)); }
  static bool any_nan(Vector a, Vector b) { return _mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_UNORD_Q)) != 0; }
  static void to_lanes(Lane* lanes, Vector v) { _mm256_storeu_pd(lanes, v); }
  static Vector from_lanes(const Lane* lanes) { return _mm256_loadu_pd(lanes); }
  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Vector v) { _mm256_storeu_pd(p, v); }
};

template <typename Storage, ReduceKind kKind, typename P = Pack<Storage>>
typename P::Vector combine(typename P::Vector sum, typename P::Vector next) {
  typename P::Vector result;
  bool suspicious = false;
  if constexpr (kKind == ReduceKind::kMin) {
    suspicious = P::any_nan(sum, next);
    result = P::min(sum, next);
  } else if constexpr (kKind == ReduceKind::kMax) {
    suspicious = P::any_nan(sum, next);
    result = P::max(sum, next);
  } else {
    result = P::add(sum, next);
    suspicious = P::any_nan(result, result);
  }
  if (suspicious) [[unlikely]] {
    typename P::Lane a[P::kWidth];
    typename P::Lane b[P::kWidth];
    P::to_lanes(a, sum);
    P::to_lanes(b, next);
    for (size_t i = 0; i < P::kWidth; ++i) a[i] = semantics::combine<Storage, kKind>(a[i], b[i]);
    return P::from_lanes(a);
  }
  return result;
}

template <typename Storage, ReduceKind kKind>
void reduce_floats(void* out, const void* const* in, int num_inputs, size_t count) {
  using P = Pack<Storage>;
  auto* result = static_cast<Storage*>(out);
  const auto* const* inputs = reinterpret_cast<const Storage* const*>(in);
  size_t i = 0;
  for (; i + P::kWidth <= count; i += P::kWidth) {
    auto sum = P::load(inputs[0] + i);
    for (int r = 1; r < num_inputs; ++r) sum = combine<Storage, kKind>(sum, P::load(inputs[r] + i));
    if constexpr (kKind == ReduceKind::kAvg) sum = P::divide(sum, num_inputs);
    P::store(result + i, sum);
  }
  for (; i < count; ++i) result[i] = semantics::reduce_element<Storage, kKind>(inputs, num_inputs, i);
}

template <typename Storage, ReduceKind kKind>
void reduce_refill_floats(void* out, const void* const* in, size_t count, void* slot, const void* next) {
  using P = Pack<Storage>;
  auto* result = static_cast<Storage*>(out);
  auto* refilled = static_cast<Storage*>(slot);
  const auto* source = static_cast<const Storage*>(next);
  const auto* const* inputs = reinterpret_cast<const Storage* const*>(in);
  const Storage* first = inputs[0];
  const Storage* second = inputs[1];
  // Two packs at a time, a whole cache line of f32 and f64: all loads of a line come before its refill.
  constexpr size_t kStep = 2 * P::kWidth;
  size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    auto low = combine<Storage, kKind>(P::load(first + i), P::load(second + i));
    auto high = combine<Storage, kKind>(P::load(first + i + P::kWidth), P::load(second + i + P::kWidth));
    if constexpr (kKind == ReduceKind::kAvg) {
      low = P::divide(low, 2);
      high = P::divide(high, 2);
    }
    P::store(result + i, low);
    P::store(result + i + P::kWidth, high);
    std::memcpy(refilled + i, source + i, kStep * sizeof(Storage));
  }
  for (; i < count; ++i) {
    result[i] = semantics::reduce_element<Storage, kKind>(inputs, 2, i);
    refilled[i] = source[i];
  }
}

template <typename Storage>
RefillFunction refill_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return reduce_refill_floats<Storage, ReduceKind::kSum>;
    case ReduceKind::kAvg:
      return reduce_refill_floats<Storage, ReduceKind::kAvg>;
    case ReduceKind::kMin:
      return reduce_refill_floats<Storage, ReduceKind::kMin>;
    case ReduceKind::kMax:
      return reduce_refill_floats<Storage, ReduceKind::kMax>;
  }
  return nullptr;
}

bool supported() {
  static const bool kSupported = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
  return kSupported;
}

// Integers: blocks that the compiler turns into vector code. The block is complete before it is stored, since `out` may be an input.
template <typename Storage, ReduceKind kKind>
void reduce_integers(void* out, const void* const* in, int num_inputs, size_t count) {
  using W = semantics::Wide<Storage>;
  constexpr size_t kBlock = 1024 / sizeof(Storage);
  auto* result = static_cast<Storage*>(out);
  const auto* const* inputs = reinterpret_cast<const Storage* const*>(in);
  typename W::Type sum[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = count - begin < kBlock ? count - begin : kBlock;
    for (size_t i = 0; i < length; ++i) sum[i] = W::load(inputs[0][begin + i]);
    for (int r = 1; r < num_inputs; ++r) {
      const Storage* next = inputs[r] + begin;
      for (size_t i = 0; i < length; ++i) sum[i] = semantics::combine<Storage, kKind>(sum[i], W::load(next[i]));
    }
    for (size_t i = 0; i < length; ++i) result[begin + i] = W::store(semantics::finish<kKind>(sum[i], num_inputs));
  }
}

template <typename Storage>
ReduceFunction fast_of(ReduceKind kind) {
  constexpr bool kFloating = std::is_floating_point_v<typename semantics::Wide<Storage>::Type>;
  if constexpr (kFloating) {
    switch (kind) {
      case ReduceKind::kSum:
        return reduce_floats<Storage, ReduceKind::kSum>;
      case ReduceKind::kAvg:
        return reduce_floats<Storage, ReduceKind::kAvg>;
      case ReduceKind::kMin:
        return reduce_floats<Storage, ReduceKind::kMin>;
      case ReduceKind::kMax:
        return reduce_floats<Storage, ReduceKind::kMax>;
    }
  } else {
    switch (kind) {
      case ReduceKind::kSum:
        return reduce_integers<Storage, ReduceKind::kSum>;
      case ReduceKind::kAvg:
        return nullptr;
      case ReduceKind::kMin:
        return reduce_integers<Storage, ReduceKind::kMin>;
      case ReduceKind::kMax:
        return reduce_integers<Storage, ReduceKind::kMax>;
    }
  }
  return nullptr;
}

}  // namespace

ReduceFunction reduce_function_avx2(DType dtype, ReduceKind kind) {
  if (!supported()) return nullptr;
  switch (dtype) {
    case DType::kF16:
      return fast_of<Half>(kind);
    case DType::kBF16:
      return fast_of<BFloat16>(kind);
    case DType::kF32:
      return fast_of<float>(kind);
    case DType::kF64:
      return fast_of<double>(kind);
    case DType::kI32:
      return fast_of<int32_t>(kind);
    case DType::kI64:
      return fast_of<int64_t>(kind);
    case DType::kU8:
      return fast_of<uint8_t>(kind);
    case DType::kBool:
      return fast_of<semantics::Bool>(kind);
  }
  return nullptr;
}

RefillFunction reduce_refill_function_avx2(DType dtype, ReduceKind kind) {
  if (!supported()) return nullptr;
  switch (dtype) {
    case DType::kF16:
      return refill_of<Half>(kind);
    case DType::kBF16:
      return refill_of<BFloat16>(kind);
    case DType::kF32:
      return refill_of<float>(kind);
    case DType::kF64:
      return refill_of<double>(kind);
    default:
      return nullptr;
  }
}

}  // namespace trireme::comm

#else

namespace trireme::comm {
ReduceFunction reduce_function_avx2(DType /*dtype*/, ReduceKind /*kind*/) { return nullptr; }
RefillFunction reduce_refill_function_avx2(DType /*dtype*/, ReduceKind /*kind*/) { return nullptr; }
}  // namespace trireme::comm

#endif
