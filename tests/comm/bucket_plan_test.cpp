// Oracle: closed form, buckets written down by hand.

#include "comm/bucket_plan.h"

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

using Plan = std::vector<std::vector<size_t>>;

TEST(BucketPlan, FirstBucketIsSmallerAndClosesWhenFull) {
  const std::vector<BucketItem> items = {{10}, {10}, {10}, {10}, {10}};
  const std::vector<size_t> order = {4, 3, 2, 1, 0};
  EXPECT_EQ(plan_buckets(items, order, 10, 20), (Plan{{4}, {3, 2}, {1, 0}}));
  EXPECT_EQ(plan_buckets(items, order, 11, 1000), (Plan{{4, 3}, {2, 1, 0}}));
  EXPECT_EQ(plan_buckets(items, order, 1000, 1000), (Plan{{4, 3, 2, 1, 0}}));
}

TEST(BucketPlan, OneByteMakesABucketOfEveryParameter) {
  const std::vector<BucketItem> items = {{10}, {0}, {10}};
  const std::vector<size_t> order = {2, 0, 1};
  EXPECT_EQ(plan_buckets(items, order, 1, 1), (Plan{{2}, {0}, {1}}));
}

TEST(BucketPlan, DtypesDoNotMixAndRestsComeInTheOrderOfCompletion) {
  const std::vector<BucketItem> items = {
      {8, DType::kF64}, {4, DType::kF32}, {8, DType::kF64}, {4, DType::kF32}, {4, DType::kF32}};
  const std::vector<size_t> order = {0, 1, 2, 3, 4};
  EXPECT_EQ(plan_buckets(items, order, 1000, 1000), (Plan{{0, 2}, {1, 3, 4}}));
  const std::vector<size_t> other = {1, 3, 4, 0, 2};
  EXPECT_EQ(plan_buckets(items, other, 8, 1000), (Plan{{1, 3}, {4}, {0, 2}}));
}

TEST(BucketPlan, NothingGivesNoBuckets) { EXPECT_TRUE(plan_buckets({}, {}, 1, 1).empty()); }

}  // namespace
}  // namespace trireme::comm
