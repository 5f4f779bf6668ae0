// Oracle: the portable kernels state the semantics; the AVX2 kernels must give the same bits (second implementation). The portable half
// conversions are held against the processor's own on all 65,536 halves and on floats of every exponent.
#include "comm/algorithms/reduce_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/str.h"
#include "comm/algorithms/reduce_semantics.h"

namespace trireme::comm {
namespace {

constexpr DType kAllDTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64,
                                DType::kI32, DType::kI64,  DType::kU8,  DType::kBool};
constexpr ReduceKind kAllKinds[] = {ReduceKind::kSum, ReduceKind::kAvg, ReduceKind::kMin, ReduceKind::kMax};

// Random bits, with NaN of many payloads, infinities, zeros of both signs and denormals made frequent.
std::vector<std::byte> nasty(DType dtype, size_t count, std::mt19937_64& random) {
  const size_t width = size_of(dtype);
  std::vector<std::byte> bytes(count * width);
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    const uint64_t sign = uint64_t{1} << (width * 8 - 1);
    const uint64_t exponent = dtype == DType::kF16    ? 0x7c00
                              : dtype == DType::kBF16 ? 0x7f80
                              : dtype == DType::kF32  ? 0x7f80'0000
                                                      : 0x7ff0'0000'0000'0000;
    if (dtype == DType::kBool) bits &= 1;
    if (dtype <= DType::kF64) {
      switch (random() % 8) {
        case 0:
          bits |= exponent;
          break;  // NaN, signalling ones too
        case 1:
          bits = (bits & sign) | exponent;
          break;  // infinity
        case 2:
          bits &= sign;
          break;  // zero
        case 3:
          bits &= ~exponent;
          break;  // denormal
        default:
          break;
      }
    }
    std::memcpy(bytes.data() + i * width, &bits, width);
  }
  return bytes;
}

TEST(ReduceKernels, SimdEqualsPortableBitForBit) {
  std::mt19937_64 random(20261130);
  int compared = 0;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceKind kind : kAllKinds) {
      const ReduceFunction simd = reduce_function_avx2(dtype, kind);
      const ReduceFunction portable = reduce_function_portable(dtype, kind);
      if (simd == nullptr) continue;
      for (const int n : {1, 2, 3, 5}) {
        for (const size_t count : {size_t{1}, size_t{7}, size_t{8}, size_t{1029}}) {
          std::vector<std::vector<std::byte>> inputs;
          std::vector<const void*> pointers;
          for (int r = 0; r < n; ++r) inputs.push_back(nasty(dtype, count, random));
          for (const auto& input : inputs) pointers.push_back(input.data());
          std::vector<std::byte> want(count * size_of(dtype));
          portable(want.data(), pointers.data(), n, count);
          // In place, into the last input: what a rank does with its own part.
          simd(inputs.back().data(), pointers.data(), n, count);
          ASSERT_EQ(inputs.back(), want) << to_string(dtype) << " " << to_string(kind) << " n=" << n
                                         << " count=" << count;
          ++compared;
        }
      }
    }
  }
  if (compared == 0) GTEST_SKIP() << "this processor has no AVX2; only the portable kernels exist here";
}

TEST(ReduceKernels, RefillingReducesTheSameBitsAndLeavesTheNext) {
  std::mt19937_64 random(7);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceKind kind : kAllKinds) {
      const RefillFunction refill = reduce_refill_function(dtype, kind);
      ASSERT_EQ(refill == nullptr, reduce_function(dtype, kind) == nullptr);
      if (refill == nullptr) continue;
      for (const size_t count : {size_t{1}, size_t{9}, size_t{1029}}) {
        for (const int slot_is : {0, 1}) {
          std::vector<std::vector<std::byte>> inputs = {nasty(dtype, count, random), nasty(dtype, count, random)};
          const std::vector<std::byte> next = nasty(dtype, count, random);
          const void* pointers[] = {inputs[0].data(), inputs[1].data()};
          std::vector<std::byte> want(count * size_of(dtype));
          reduce_function_portable(dtype, kind)(want.data(), pointers, 2, count);
          // In place: the result goes where this rank's own part was.
          refill(inputs[1 - slot_is].data(), pointers, count, inputs[slot_is].data(), next.data());
          ASSERT_EQ(inputs[1 - slot_is], want) << to_string(dtype) << " " << to_string(kind) << " count=" << count;
          ASSERT_EQ(inputs[slot_is], next);
          // With `out` as what comes next, both get the result.
          inputs = {nasty(dtype, count, random), nasty(dtype, count, random)};
          pointers[0] = inputs[0].data();
          pointers[1] = inputs[1].data();
          reduce_function_portable(dtype, kind)(want.data(), pointers, 2, count);
          void* out = inputs[1 - slot_is].data();
          refill(out, pointers, count, inputs[slot_is].data(), out);
          ASSERT_EQ(inputs[0], want) << to_string(dtype) << " " << to_string(kind) << " count=" << count;
          ASSERT_EQ(inputs[1], want);
        }
      }
    }
  }
}

TEST(ReduceKernels, KeepsTheFirstNanAndTheFirstZero) {
  const float first = std::bit_cast<float>(0x7fa0'0001u);  // signalling, payload 0x200001
  const float second = std::bit_cast<float>(0xffc0'0002u);
  const float zeros[] = {-0.0F, 0.0F};
  for (const auto pick : {reduce_function_portable, reduce_function}) {
    float out = 0;
    const void* in[] = {&first, &second};
    pick(DType::kF32, ReduceKind::kSum)(&out, in, 2, 1);
    EXPECT_EQ(std::bit_cast<uint32_t>(out), 0x7fe0'0001u) << "the first payload, made quiet";
    pick(DType::kF32, ReduceKind::kMax)(&out, in, 2, 1);
    EXPECT_EQ(std::bit_cast<uint32_t>(out), 0x7fa0'0001u) << "MAX returns the first NaN as it is";
    const void* zero_in[] = {&zeros[0], &zeros[1]};
    pick(DType::kF32, ReduceKind::kMax)(&out, zero_in, 2, 1);
    EXPECT_TRUE(std::signbit(out)) << "of equal values the first";
    const void* zero_swapped[] = {&zeros[1], &zeros[0]};
    pick(DType::kF32, ReduceKind::kMin)(&out, zero_swapped, 2, 1);
    EXPECT_FALSE(std::signbit(out));
  }
}

TEST(ReduceKernels, RoundsHalvesOnce) {
  // 2048 + 1 + 1: in f16 each step would round to 2048; in f32 the sum is 2050, which f16 holds. bf16 likewise with 256.
  const uint16_t half[] = {0x6800, 0x3c00, 0x3c00};
  const uint16_t brain[] = {0x4380, 0x3f80, 0x3f80};
  const void* in_half[] = {&half[0], &half[1], &half[2]};
  const void* in_brain[] = {&brain[0], &brain[1], &brain[2]};
  uint16_t out = 0;
  reduce_function(DType::kF16, ReduceKind::kSum)(&out, in_half, 3, 1);
  EXPECT_EQ(out, 0x6801);
  reduce_function(DType::kBF16, ReduceKind::kSum)(&out, in_brain, 3, 1);
  EXPECT_EQ(out, 0x4381);
}

TEST(ReduceKernels, AveragesIntegersTowardsZeroAndRefusesBool) {
  const int32_t values[] = {-3, -4};
  const void* in[] = {&values[0], &values[1]};
  int32_t out = 0;
  reduce_function(DType::kI32, ReduceKind::kAvg)(&out, in, 2, 1);
  EXPECT_EQ(out, -3);
  EXPECT_EQ(reduce_function(DType::kBool, ReduceKind::kAvg), nullptr);
}

TEST(ReduceKernels, HalfConversionsAgreeWithClosedForm) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const semantics::Half half = {static_cast<uint16_t>(bits)};
    const float wide = semantics::widen(half);
    const uint32_t exponent = (bits >> 10) & 31;
    const double fraction = bits & 1023;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(wide), fraction != 0);
      if (fraction == 0) {
        ASSERT_EQ(wide, sign * std::numeric_limits<float>::infinity());
      }
      ASSERT_EQ(semantics::narrow_half(wide).bits, fraction != 0 ? (bits | 0x200) : bits);
      continue;
    }
    const double value =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    ASSERT_EQ(wide, sign * value) << bits;
    ASSERT_EQ(semantics::narrow_half(wide).bits, bits);
  }
  // Ties go to even, on both sides of the smallest normal and at the largest.
  EXPECT_EQ(semantics::narrow_half(0x1p-25F).bits, 0);
  EXPECT_EQ(semantics::narrow_half(0x1.8p-24F).bits, 2);
  EXPECT_EQ(semantics::narrow_half(65519.996F).bits, 0x7bff);
  EXPECT_EQ(semantics::narrow_half(65520.0F).bits, 0x7c00);
  EXPECT_EQ(semantics::narrow_half(1.0F + 0x1p-11F).bits, 0x3c00);
  EXPECT_EQ(semantics::narrow_half(1.0F + 0x1.8p-10F).bits, 0x3c02);
}

}  // namespace
}  // namespace trireme::comm
