// Oracle: what the test itself keeps and frees. Blocks are invented addresses; the lines are the functions below, which stand outside namespace
// trireme as a user's do.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "memory/track/leak_watch.h"

namespace {

using trireme::memory::Growth;
using trireme::memory::LeakWatch;

/// Addresses that nobody has, each once.
const void* new_block() {
  static uintptr_t next = uintptr_t{1} << 44;
  return reinterpret_cast<const void*>(next += 4096);
}

}  // namespace

// Not inlined and not merged: each is a line of its own.
[[gnu::noinline]] const void* kept_for_ever(LeakWatch& watch, size_t bytes, bool in_graph) {
  const void* block = new_block();
  watch.allocated(block, bytes, in_graph);
  asm volatile("");
  return block;
}
[[gnu::noinline]] const void* freed_soon(LeakWatch& watch, size_t bytes) {
  const void* block = new_block();
  watch.allocated(block, bytes, true);
  asm volatile("" ::"r"(block));
  return block;
}

namespace {

constexpr size_t kMegabyte = 1'000'000;

// The published rule for this watch: named within 20 steps, with the right line, at one sample per 512 KiB.
TEST(LeakWatch, NamesAMegabyteAStepWithinTwentySteps) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    LeakWatch watch({.seed = seed});
    constexpr int kStart = 40;
    std::vector<Growth> found;
    int step = 0;
    for (; step < kStart + 20 && found.empty(); ++step) {
      for (int i = 0; i < 30; ++i) watch.freed(freed_soon(watch, kMegabyte));
      if (step >= kStart) (void)kept_for_ever(watch, kMegabyte, true);
      found = watch.end_step();
      if (step < kStart) {
        ASSERT_TRUE(found.empty()) << "seed " << seed << ": " << found[0].text();
      }
    }
    ASSERT_EQ(found.size(), 1U) << "seed " << seed << ": nothing was named by step " << step;
    EXPECT_NE(found[0].where.find("kept_for_ever"), std::string::npos) << found[0].where;
    EXPECT_TRUE(found[0].with_graph);
    EXPECT_GE(found[0].since_step, kStart);
    EXPECT_LE(found[0].since_step, kStart + 5);
    // Nine or more samples of exponential spacing: the estimate is within a factor of two.
    EXPECT_NEAR(found[0].bytes_per_step, kMegabyte, 0.6 * kMegabyte) << "seed " << seed;
  }
}

TEST(LeakWatch, TellsOfSmallLeaksLaterAndEstimatesThemWithoutBias) {
  double sum = 0;
  constexpr int kSeeds = 40;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    LeakWatch watch({.seed = seed});
    double last = 0;
    for (int step = 0; step < 3000; ++step) {
      for (int i = 0; i < 4; ++i) (void)kept_for_ever(watch, 10'000, false);
      for (const Growth& growth : watch.end_step()) {
        last = growth.bytes_per_step;
        EXPECT_FALSE(growth.with_graph);
      }
    }
    EXPECT_GT(last, 0) << "seed " << seed;
    sum += last;
  }
  EXPECT_NEAR(sum / kSeeds, 40'000, 6'000);
}

// What a healthy program does with memory that lives longer than a step: state made once, a queue of fixed depth, batches that come and go, a
// cache that is filled and stays, work that is kept over every tenth step.
TEST(LeakWatch, IsSilentOverTwoThousandHealthySteps) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    LeakWatch watch({.seed = seed});
    for (int i = 0; i < 60; ++i) (void)kept_for_ever(watch, 4 * kMegabyte, false);
    std::deque<const void*> queue;
    std::vector<const void*> over_ten;
    for (int step = 0; step < 2000; ++step) {
      for (int i = 0; i < 20; ++i) watch.freed(freed_soon(watch, kMegabyte));
      queue.push_back(freed_soon(watch, kMegabyte));
      if (queue.size() > 6) {
        watch.freed(queue.front());
        queue.pop_front();
      }
      over_ten.push_back(freed_soon(watch, kMegabyte));
      if (step % 5 == 4) {
        for (const void* block : over_ten) watch.freed(block);
        over_ten.clear();
      }
      const std::vector<Growth> found = watch.end_step();
      ASSERT_TRUE(found.empty()) << "seed " << seed << " step " << step << ": " << found[0].text();
    }
  }
}

TEST(LeakWatch, TellsAgainOnlyWhenItHasDoubled) {
  LeakWatch watch({.mean_sample_bytes = 1});
  std::vector<double> told;
  for (int step = 0; step < 400; ++step) {
    (void)kept_for_ever(watch, 1000, false);
    for (const Growth& growth : watch.end_step()) told.push_back(growth.bytes);
  }
  ASSERT_GE(told.size(), 3U);
  EXPECT_LE(told.size(), 7U);
  for (size_t i = 1; i < told.size(); ++i) EXPECT_GE(told[i], 2 * told[i - 1]);
}

TEST(LeakWatch, FallsSilentWhenTheLeakEnds) {
  LeakWatch watch({.mean_sample_bytes = 1});
  int told = 0;
  for (int step = 0; step < 30; ++step) {
    (void)kept_for_ever(watch, 1000, false);
    told += static_cast<int>(watch.end_step().size());
  }
  EXPECT_GE(told, 1);
  for (int step = 0; step < 500; ++step) EXPECT_TRUE(watch.end_step().empty());
}

TEST(LeakWatch, SaysWhereAndHowToFindTheLine) {
  LeakWatch watch({.mean_sample_bytes = 1});
  std::string text;
  for (int step = 0; step < 30 && text.empty(); ++step) {
    (void)kept_for_ever(watch, 1'200'000, true);
    for (const Growth& growth : watch.end_step()) text = growth.text();
  }
  EXPECT_NE(text.find("memory grows by 1.2 MB per step since step 0 ("), std::string::npos) << text;
  EXPECT_NE(text.find("addr2line -Cfie /"), std::string::npos) << text;
  EXPECT_NE(text.find("loss"), std::string::npos) << text;
}

}  // namespace
