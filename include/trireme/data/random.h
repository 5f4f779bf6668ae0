// Random numbers that are a pure function of what they are for, so that a resumed run draws what the whole one drew.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a block of four
// 32-bit numbers is a keyed scrambling of a 128-bit counter. Key = seed; counter = (block, worker, step, role).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme::data {

/// What numbers are drawn for. Streams of different roles never overlap. The values are part of checkpoints.
enum class RandomRole : uint32_t { kInit = 1, kShuffle = 2, kAugment = 3, kDropout = 4, kTest = 5 };

/// The four words of one Philox4x32-10 block.
[[nodiscard]] std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) noexcept;

/// Purpose        Stream of numbers for one (seed, role, worker, step). `worker` is a rank where ranks should differ,
///                a place in the global batch where the number of ranks must not matter, 0 where all must agree.
/// Thread safety  none. A value: copy it to draw the same again.
/// Limits         steps below 2^32, and 2^34 words a stream.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomRole role, uint32_t worker, uint32_t step) noexcept
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32U)},
        counter_{0, worker, step, static_cast<uint32_t>(role)} {}

  [[nodiscard]] uint32_t next() noexcept {
    if (used_ == 4) {
      block_ = philox(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[static_cast<size_t>(used_++)];
  }

  /// Uniform in [0, bound); the bias is below bound / 2^32.
  [[nodiscard]] uint32_t below(uint32_t bound) noexcept {
    return static_cast<uint32_t>((uint64_t{next()} * bound) >> 32U);
  }

  /// Uniform in [0, 1), a multiple of 2^-24.
  [[nodiscard]] float uniform() noexcept { return static_cast<float>(next() >> 8U) * 0x1p-24F; }

  /// 64 bits, for seeding another generator.
  [[nodiscard]] uint64_t next64() noexcept {
    const uint64_t high = next();
    return (high << 32U) | next();
  }

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace trireme::data
