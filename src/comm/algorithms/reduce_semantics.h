// One step of a reduction on one element, as docs/numerics.md promises it, NaN payloads and signed zeros included. The portable kernels
// loop over these functions; the SIMD kernels fall back to them for the rare vectors that hold a NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "comm/transport/call_info.h"

namespace trireme::comm::semantics {
// Internal linkage on purpose: the AVX2 file compiles these with other instructions, and the linker must not lend its copy to the others.
namespace {

// A storage type tags the element; `Wide` is what it is combined in.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

inline float quiet(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) | 0x0040'0000u); }
inline double quiet(double x) { return std::bit_cast<double>(std::bit_cast<uint64_t>(x) | 0x0008'0000'0000'0000u); }

inline float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
inline BFloat16 narrow_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return {static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// IEEE binary16, as the F16C instructions do it: denormals exact, NaN made quiet with its payload's upper bits kept.
inline float widen(Half x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  const uint32_t fraction = x.bits & 0x3ffu;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f80'0000u | (fraction << 13) | (fraction != 0 ? 0x0040'0000u : 0u));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}
inline Half narrow_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fff'ffffu;
  if (magnitude > 0x7f80'0000u) return {static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  if (magnitude >= 0x477f'f000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to 65536 or more: infinity
  if (magnitude < 0x3880'0000u) {
    // Below the smallest normal 2^-14: adding 0.5 aligns the last bit of f32 with 2^-24, and the hardware rounds to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f00'0000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x3800'0000u) >> 13))};
}

template <typename T>
struct Wide {
  using Type = T;
  static T load(T x) { return x; }
  static T store(T x) { return x; }
};
template <>
struct Wide<Half> {
  using Type = float;
  static float load(Half x) { return widen(x); }
  static Half store(float x) { return narrow_half(x); }
};
template <>
struct Wide<BFloat16> {
  using Type = float;
  static float load(BFloat16 x) { return widen(x); }
  static BFloat16 store(float x) { return narrow_bf16(x); }
};
template <>
struct Wide<Bool> {
  using Type = uint8_t;
  static uint8_t load(Bool x) { return x.value != 0; }
  static Bool store(uint8_t x) { return {x}; }
};

template <typename T>
constexpr bool kIsBool = std::is_same_v<T, Bool>;

/// `sum` so far and the next rank's element.
template <typename Storage, ReduceKind kKind, typename W>
W combine(W sum, W next) {
  if constexpr (kKind == ReduceKind::kSum || kKind == ReduceKind::kAvg) {
    if constexpr (kIsBool<Storage>) {
      return sum | next;
    } else if constexpr (std::is_floating_point_v<W>) {
      const W result = sum + next;
      if (std::isnan(result)) [[unlikely]] {
        if (std::isnan(sum)) return quiet(sum);
        if (std::isnan(next)) return quiet(next);
      }
      return result;
    } else {
      // Wraps around, without the undefined behaviour of a signed overflow.
      using Unsigned = std::make_unsigned_t<W>;
      return static_cast<W>(static_cast<Unsigned>(sum) + static_cast<Unsigned>(next));
    }
  } else {
    if constexpr (std::is_floating_point_v<W>) {
      if (std::isnan(sum)) return sum;
      if (std::isnan(next)) return next;
    }
    return kKind == ReduceKind::kMin ? (next < sum ? next : sum) : (next > sum ? next : sum);
  }
}

template <ReduceKind kKind, typename W>
W finish(W sum, int num_inputs) {
  if constexpr (kKind == ReduceKind::kAvg) {
    return static_cast<W>(sum / static_cast<W>(num_inputs));
  } else {
    return sum;
  }
}

/// The whole reduction of element i.
template <typename Storage, ReduceKind kKind>
Storage reduce_element(const Storage* const* in, int num_inputs, size_t i) {
  using W = Wide<Storage>;
  auto sum = W::load(in[0][i]);
  for (int r = 1; r < num_inputs; ++r) sum = combine<Storage, kKind>(sum, W::load(in[r][i]));
  return W::store(finish<kKind>(sum, num_inputs));
}

}  // namespace
}  // namespace trireme::comm::semantics
