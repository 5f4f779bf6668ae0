// Which samples a rank sees at which step: each sample exactly once an epoch, whatever the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::data {

/// A permutation of 0 .. size-1 that is computed, not stored: `at(i)` costs the same for any i, so a run resumes in the
/// middle of an epoch without replaying it.
///
/// A Feistel network of 8 rounds over the next power of four >= size, with Philox4x32-10 as round function, walked
/// until the value falls below size ("cycle walking": Black and Rogaway, "Ciphers with arbitrary finite domains",
/// 2002). About 4 walks at worst on average.
class Permutation {
 public:
  /// size 1 .. 2^40. Different (seed, epoch) give unrelated permutations.
  Permutation(int64_t size, uint64_t seed, int64_t epoch);

  /// The place of `index` (0 .. size-1, not checked). Cost: some 8 Philox blocks per walk, well below 1 us.
  [[nodiscard]] int64_t at(int64_t index) const noexcept;
  [[nodiscard]] int64_t size() const noexcept { return size_; }

 private:
  int64_t size_;
  uint64_t seed_;
  uint32_t epoch_;
  uint32_t half_bits_ = 1;
};

struct SamplerOptions {
  int64_t num_samples = 0;
  int64_t global_batch = 0;  ///< samples of one step, over all ranks
  uint64_t seed = 0;
  bool shuffle = true;  ///< false: 0, 1, 2, ..., for evaluation
};

/// One rank's part of one step. The ranks' parts, in rank order, are the global batch.
struct SampleSlice {
  std::vector<int64_t> indices;  ///< may be empty on some ranks at the end of an epoch
  int64_t first_slot = 0;        ///< place of indices[0] in the global batch
  int64_t global_count = 0;      ///< samples of the step over all ranks: the loss's denominator
  int64_t epoch = 0;
};

/// Purpose        Deals out samples. Within an epoch, step k takes the next `global_batch` samples of the epoch's
///                permutation; the last step of an epoch is shorter when the sizes do not divide. No sample is left
///                out and none comes twice. Of m samples, rank r of n gets ceil or floor of m/n, the first ranks more.
/// Invariants     position() is the whole state: samples dealt since the start, over all ranks and epochs. It may be
///                continued with another number of ranks.
/// Thread safety  none.
class Sampler {
 public:
  /// Errors: kInvalidArgument for num_samples or global_batch below 1.
  explicit Sampler(const SamplerOptions& options);

  /// This rank's part of the next step; advances. [local; every rank must call it once a step]
  [[nodiscard]] SampleSlice next(int rank, int num_ranks);

  [[nodiscard]] int64_t position() const noexcept { return position_; }
  /// Errors: kInvalidArgument for a negative position.
  void set_position(int64_t position);

  [[nodiscard]] int64_t steps_per_epoch() const noexcept {
    return (options_.num_samples + options_.global_batch - 1) / options_.global_batch;
  }
  [[nodiscard]] const SamplerOptions& options() const noexcept { return options_; }

 private:
  SamplerOptions options_;
  int64_t position_ = 0;
};

/// [begin, end) of `rank` when `count` things are dealt in order to `num_ranks`.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
};
[[nodiscard]] Share share_of(int64_t count, int rank, int num_ranks) noexcept;

}  // namespace trireme::data
