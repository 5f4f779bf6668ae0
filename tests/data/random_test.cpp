// Oracle: known answers of Philox4x32-10 published with Random123 (kat_vectors).
#include "trireme/data/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace trireme::data {
namespace {

using testing::ElementsAre;

TEST(Philox, GivesPublishedAnswers) {
  EXPECT_THAT(philox({0, 0, 0, 0}, {0, 0}), ElementsAre(0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U));
  EXPECT_THAT(philox({0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}, {0xffffffffU, 0xffffffffU}),
              ElementsAre(0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU));
  EXPECT_THAT(philox({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}, {0xa4093822U, 0x299f31d0U}),
              ElementsAre(0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U));
}

TEST(RandomStream, DependsOnEachOfItsKeysAndNothingElse) {
  std::set<uint64_t> firsts;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32U}) {
    for (const auto role : {RandomRole::kAugment, RandomRole::kDropout}) {
      for (const uint32_t worker : {0U, 1U}) {
        for (const uint32_t step : {0U, 1U}) {
          RandomStream stream(seed, role, worker, step);
          RandomStream again(seed, role, worker, step);
          const uint64_t value = stream.next64();
          EXPECT_EQ(value, again.next64());
          firsts.insert(value);
        }
      }
    }
  }
  EXPECT_EQ(firsts.size(), 24U);
}

TEST(RandomStream, StaysWithinBounds) {
  RandomStream stream(3, RandomRole::kTest, 0, 0);
  std::array<int, 5> counts{};
  for (int i = 0; i < 5000; ++i) {
    const float uniform = stream.uniform();
    ASSERT_GE(uniform, 0.0F);
    ASSERT_LT(uniform, 1.0F);
    ++counts.at(stream.below(5));
  }
  // 1000 expected, standard deviation 28: six of them are 170.
  for (const int count : counts) EXPECT_NEAR(count, 1000, 170);
}

}  // namespace
}  // namespace trireme::data
