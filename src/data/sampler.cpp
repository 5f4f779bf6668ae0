#include "trireme/data/sampler.h"

#include <algorithm>

#include "base/str.h"
#include "trireme/base/error.h"
#include "trireme/data/random.h"

namespace trireme::data {

Permutation::Permutation(int64_t size, uint64_t seed, int64_t epoch)
    : size_(size), seed_(seed), epoch_(static_cast<uint32_t>(epoch)) {
  if (size < 1 || size > (int64_t{1} << 40U)) {
    throw Error(ErrorKind::kInvalidArgument, str("[data.permutation] size is ", size, "; 1 to 2^40 is required."));
  }
  while ((int64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

int64_t Permutation::at(int64_t index) const noexcept {
  const uint32_t mask = (uint32_t{1} << half_bits_) - 1;
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32U)};
  auto value = static_cast<uint64_t>(index);
  do {
    auto left = static_cast<uint32_t>(value >> half_bits_);
    auto right = static_cast<uint32_t>(value) & mask;
    for (uint32_t round = 0; round < 8; ++round) {
      const auto scrambled = philox({right, round, epoch_, static_cast<uint32_t>(RandomRole::kShuffle)}, key);
      const uint32_t next = left ^ (scrambled[0] & mask);
      left = right;
      right = next;
    }
    value = (uint64_t{left} << half_bits_) | right;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

Share share_of(int64_t count, int rank, int num_ranks) noexcept {
  const int64_t each = count / num_ranks;
  const int64_t more = count % num_ranks;  // the first so many ranks get one more
  const int64_t begin = rank * each + std::min<int64_t>(rank, more);
  return {begin, begin + each + (rank < more ? 1 : 0)};
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  if (options.num_samples < 1 || options.global_batch < 1) {
    throw Error(ErrorKind::kInvalidArgument,
                str("[data.sampler] ", options.num_samples, " samples and a global batch of ", options.global_batch,
                    "; both must be at least 1."));
  }
}

SampleSlice Sampler::next(int rank, int num_ranks) {
  const int64_t epoch = position_ / options_.num_samples;
  const int64_t start = position_ % options_.num_samples;
  const int64_t count = std::min(options_.global_batch, options_.num_samples - start);
  const Share share = share_of(count, rank, num_ranks);
  SampleSlice slice;
  slice.first_slot = share.begin;
  slice.global_count = count;
  slice.epoch = epoch;
  slice.indices.reserve(static_cast<size_t>(share.end - share.begin));
  const Permutation permutation(options_.num_samples, options_.seed, epoch);
  for (int64_t slot = share.begin; slot < share.end; ++slot) {
    slice.indices.push_back(options_.shuffle ? permutation.at(start + slot) : start + slot);
  }
  position_ += count;
  return slice;
}

void Sampler::set_position(int64_t position) {
  if (position < 0) {
    throw Error(ErrorKind::kInvalidArgument,
                str("[data.sampler] position is ", position, "; it must not be negative."));
  }
  position_ = position;
}

}  // namespace trireme::data
