// Oracle: closed form. An epoch is a permutation of all samples; the ranks' parts, in order, are the global batch.
#include "trireme/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

class PermutationTest : public testing::TestWithParam<int64_t> {};

TEST_P(PermutationTest, HitsEveryPlaceOnce) {
  const int64_t size = GetParam();
  const Permutation permutation(size, 42, 3);
  std::vector<bool> seen(static_cast<size_t>(size));
  int64_t fixed = 0;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = permutation.at(i);
    ASSERT_GE(at, 0);
    ASSERT_LT(at, size);
    ASSERT_FALSE(seen[static_cast<size_t>(at)]);
    seen[static_cast<size_t>(at)] = true;
    if (at == i) ++fixed;
  }
  // A random permutation has one fixed point on average, whatever its size; 12 or more come once in 10^9.
  if (size > 20) {
    EXPECT_LT(fixed, 12);
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, PermutationTest, testing::Values(1, 2, 3, 4, 5, 16, 17, 1000, 4096, 60'000));

TEST(Permutation, DiffersBySeedAndEpoch) {
  const auto list = [](uint64_t seed, int64_t epoch) {
    const Permutation permutation(100, seed, epoch);
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 100; ++i) values.push_back(permutation.at(i));
    return values;
  };
  EXPECT_EQ(list(1, 0), list(1, 0));
  EXPECT_NE(list(1, 0), list(2, 0));
  EXPECT_NE(list(1, 0), list(1, 1));
}

struct Layout {
  int64_t samples;
  int64_t batch;
  int ranks;
};
class SamplerTest : public testing::TestWithParam<Layout> {};

TEST_P(SamplerTest, CoversEachSampleOnceAnEpochOverAllRanks) {
  const auto [samples, batch, ranks] = GetParam();
  std::vector<Sampler> samplers(static_cast<size_t>(ranks), Sampler({samples, batch, 5, true}));
  Sampler alone({samples, batch, 5, true});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> counts(static_cast<size_t>(samples));
    for (int64_t step = 0; step < alone.steps_per_epoch(); ++step) {
      const SampleSlice whole = alone.next(0, 1);
      EXPECT_EQ(whole.epoch, epoch);
      std::vector<int64_t> joined;
      for (int rank = 0; rank < ranks; ++rank) {
        const SampleSlice slice = samplers[static_cast<size_t>(rank)].next(rank, ranks);
        EXPECT_EQ(slice.first_slot, static_cast<int64_t>(joined.size()));
        EXPECT_EQ(slice.global_count, static_cast<int64_t>(whole.indices.size()));
        joined.insert(joined.end(), slice.indices.begin(), slice.indices.end());
      }
      EXPECT_EQ(joined, whole.indices);
      for (const int64_t index : joined) ++counts[static_cast<size_t>(index)];
    }
    EXPECT_EQ(std::count(counts.begin(), counts.end(), 1), samples);
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, SamplerTest,
                         testing::Values(Layout{1, 1, 1}, Layout{10, 3, 1}, Layout{10, 3, 2}, Layout{10, 4, 3},
                                         Layout{7, 100, 4}, Layout{5, 2, 7}, Layout{125, 8, 3}));

// Accelerate PR#4071: resumed in the middle of epoch 1, another order came. 125 steps an epoch, saved at step 200.
TEST(Sampler, ContinuesFromPositionInTheMiddleOfAnEpoch) {
  Sampler whole({1000, 8, 9, true});
  for (int step = 0; step < 200; ++step) (void)whole.next(1, 2);
  Sampler resumed({1000, 8, 9, true});
  resumed.set_position(whole.position());
  for (int step = 200; step < 500; ++step) {
    const SampleSlice a = whole.next(1, 2);
    const SampleSlice b = resumed.next(1, 2);
    ASSERT_EQ(a.indices, b.indices) << step;
    ASSERT_EQ(a.epoch, b.epoch);
  }
}

TEST(Sampler, WithoutShuffleCountsUp) {
  Sampler sampler({5, 3, 0, false});
  EXPECT_EQ(sampler.next(0, 1).indices, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(sampler.next(0, 1).indices, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(sampler.next(0, 1).indices, (std::vector<int64_t>{0, 1, 2}));
}

TEST(Sampler, RefusesImpossibleSizes) {
  EXPECT_THROW(Sampler({0, 1, 0, true}), Error);
  EXPECT_THROW(Sampler({1, 0, 0, true}), Error);
  Sampler sampler({1, 1, 0, true});
  EXPECT_THROW(sampler.set_position(-1), Error);
}

}  // namespace
}  // namespace trireme::data
