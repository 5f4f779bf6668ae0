// Oracle: closed form. Blocks are invented addresses of exact sizes; the sums are done by hand beside each test.
#include "memory/track/block_table.h"

#include <gtest/gtest.h>

#include <thread>

namespace trireme::memory {
namespace {

const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }
constexpr BlockLabel kNothing = {};

TEST(BlockTable, CountsWhatIsAliveAndWhatWasHighest) {
  BlockTable table;
  table.allocated(at(0x1000), 100, {Category::kActivations, 0});
  table.allocated(at(0x2000), 30, kNothing);
  table.freed(at(0x1000));
  table.allocated(at(0x3000), 40, {Category::kActivations, 0});
  table.freed(at(0x9999));  // unknown
  const MemoryReport report = table.report();
  EXPECT_EQ(report.current[Category::kActivations], 40);
  EXPECT_EQ(report.current.total(), 70);
  EXPECT_EQ(report.peak[Category::kActivations], 100);
  EXPECT_EQ(report.peak[Category::kOther], 30);
  EXPECT_EQ(report.at_peak.total(), 130);
  EXPECT_EQ(report.blocks[static_cast<size_t>(Category::kActivations)], 1);
  EXPECT_EQ(report.allocations, 3);
  EXPECT_EQ(report.frees, 1);
}

// A gradient is a temporary of backward until it is .grad. Were it counted as both, "other" would have reached 10 + 400.
TEST(BlockTable, ALabelHoldsFromTheBirthOn) {
  BlockTable table;
  table.allocated(at(0x1000), 10, kNothing);
  table.allocated(at(0x2000), 400, kNothing);
  EXPECT_TRUE(table.relabel(at(0x2000), {Category::kGradients, 0}, 400));
  table.allocated(at(0x3000), 5, kNothing);
  table.freed(at(0x2000));
  const MemoryReport report = table.report();
  EXPECT_EQ(report.peak[Category::kOther], 15);
  EXPECT_EQ(report.peak[Category::kGradients], 400);
  EXPECT_EQ(report.at_peak[Category::kGradients], 400);
  EXPECT_EQ(report.at_peak[Category::kOther], 15);
  EXPECT_FALSE(table.relabel(at(0x2000), {Category::kGradients, 0}, 400));
}

TEST(BlockTable, ABlockOfAnEarlierStepMovesItsBytes) {
  BlockTable table;
  table.allocated(at(0x1000), 10, kNothing);
  table.end_step();
  EXPECT_TRUE(table.relabel(at(0x1000), {Category::kOptimizerState, 0}, 10));
  const MemoryReport report = table.report();
  EXPECT_EQ(report.current[Category::kOther], 0);
  EXPECT_EQ(report.current[Category::kOptimizerState], 10);
  EXPECT_EQ(report.steps, 1);
}

// A region of 1000 in which two gradients of 300 and 200 lie: 500 are gradients, 500 communication, 1000 in all, at any time.
TEST(BlockTable, LendsRegionsToGradients) {
  BlockTable table;
  table.add_region(at(0x1000), 1000);
  EXPECT_TRUE(table.relabel(at(0x1000), {Category::kGradients, 0}, 300));
  EXPECT_TRUE(table.relabel(at(0x1000), {Category::kGradients, 0}, 300));  // told twice, counted once
  EXPECT_TRUE(table.relabel(at(0x1000 + 300), {Category::kGradients, 0}, 200));
  EXPECT_FALSE(table.relabel(at(0x1000 + 1000), {Category::kGradients, 0}, 1));  // the next byte
  MemoryReport report = table.report();
  EXPECT_EQ(report.current[Category::kGradients], 500);
  EXPECT_EQ(report.current[Category::kCommunication], 500);
  EXPECT_EQ(report.at_peak.total(), 1000);
  table.end_loans({at(0x1000)});
  EXPECT_EQ(table.report().current[Category::kGradients], 300);
  table.remove_region(at(0x1000));
  report = table.report();
  EXPECT_EQ(report.current.total(), 0);
  EXPECT_EQ(report.at_peak.total(), 1000);
}

TEST(BlockTable, KnowsTheHighestOfEachModule) {
  BlockTable table;
  const uint32_t a = table.module_index("a");
  const uint32_t b = table.module_index("b");
  EXPECT_EQ(table.module_index("a"), a);
  table.allocated(at(0x1000), 7, {Category::kActivations, a});
  table.freed(at(0x1000));
  table.allocated(at(0x1000), 5, {Category::kActivations, a});
  table.allocated(at(0x2000), 9, {Category::kParameters, b});
  const MemoryReport report = table.report();
  ASSERT_EQ(report.modules.size(), 2U);
  EXPECT_EQ(report.modules[0].name, "a");
  EXPECT_EQ(report.modules[0].current[Category::kActivations], 5);
  EXPECT_EQ(report.modules[0].peak_activations, 7);
  EXPECT_EQ(report.modules[1].current[Category::kParameters], 9);
}

TEST(BlockTable, ResetPeakBeginsAtThePresent) {
  BlockTable table;
  table.allocated(at(0x1000), 100, kNothing);
  table.allocated(at(0x2000), 1, kNothing);
  table.freed(at(0x1000));
  table.reset_peak();
  EXPECT_EQ(table.report().at_peak.total(), 1);
  EXPECT_EQ(table.report().peak[Category::kOther], 1);
}

// More events than are kept at a time: the highest value lies in the first part and must not be lost.
TEST(BlockTable, IsExactOverMillionsOfEvents) {
  BlockTable table;
  table.allocated(at(0x1000), 1'000'000, kNothing);
  table.freed(at(0x1000));
  for (int i = 0; i < 1'100'000; ++i) {
    table.allocated(at(0x1000), 8, kNothing);
    table.freed(at(0x1000));
  }
  const MemoryReport report = table.report();
  EXPECT_EQ(report.current.total(), 0);
  EXPECT_EQ(report.at_peak.total(), 1'000'000);
  EXPECT_EQ(report.allocations, 1'100'001);
}

TEST(BlockTable, ThreadsLoseNothing) {
  BlockTable table;
  std::vector<std::thread> threads;
  for (uintptr_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&table, t] {
      for (uintptr_t i = 1; i <= 2000; ++i) {
        table.allocated(at((t << 32) + i * 64), static_cast<int64_t>(i), kNothing);
        if (i % 2 == 0) table.freed(at((t << 32) + i * 64));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.report().current.total(), 4 * 1000 * 1000);  // the odd numbers below 2000 add up to 1000^2
}

TEST(MemoryReport, TextsShowEachNumberWithItsName) {
  BlockTable table;
  const uint32_t module = table.module_index("layers.0");
  table.allocated(at(0x1000), 3 << 20, {Category::kParameters, module});
  table.allocated(at(0x2000), 512, {Category::kActivations, module});
  table.end_step();
  const MemoryReport report = table.report();
  const std::string text = report.text();
  EXPECT_NE(text.find("after 1 steps"), std::string::npos) << text;
  EXPECT_NE(text.find("| parameters         |       3.0 MiB |       3.0 MiB |     3.0 MiB |      1 |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| activations        |         512 B |         512 B |       512 B |      1 |"),
            std::string::npos)
      << text;
  EXPECT_NE(report.modules_text().find("layers.0          3.0 MiB"), std::string::npos) << report.modules_text();
  const std::string tensors = tensor_table({{"w", Category::kParameters, {2, 3}, "float32", "cpu", 24, ""},
                                            {"tied", Category::kParameters, {2, 3}, "float32", "cpu", 0, "w"}});
  EXPECT_NE(tensors.find("(2, 3)   float32          24 B\n"), std::string::npos) << tensors;
  EXPECT_NE(tensors.find("shares the storage of w"), std::string::npos) << tensors;
  EXPECT_NE(tensors.find("Total on cpu: 24 B (24 bytes)"), std::string::npos) << tensors;
}

// The free of a foreign block is found out late: its address may be another block's by then.
TEST(BlockTable, AForeignBlocksLateFreeIsNotTakenForAnothers) {
  BlockTable table;
  table.allocated(at(0x1000), 100, {Category::kParameters, 0}, /*foreign=*/true);
  table.allocated(at(0x1000), 30, kNothing);  // the program has freed it, and the allocator has this address again
  table.foreign_freed(at(0x1000));
  EXPECT_EQ(table.report().current[Category::kParameters], 0);
  EXPECT_EQ(table.report().current[Category::kOther], 30);
  table.allocated(at(0x2000), 7, {Category::kParameters, 0}, /*foreign=*/true);
  table.foreign_freed(at(0x2000));
  EXPECT_EQ(table.report().current.total(), 30);
}

}  // namespace
}  // namespace trireme::memory
