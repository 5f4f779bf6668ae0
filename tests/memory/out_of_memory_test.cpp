// Oracle: closed form; the formulas of the header, computed by hand for round numbers.
#include "memory/track/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::memory {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = 1 << 20;

OutOfMemory example() {
  OutOfMemory failure;
  failure.held.current.bytes = {100 * kMiB, 100 * kMiB, 200 * kMiB, 900 * kMiB, 50 * kMiB, 10 * kMiB};
  for (int i = 0; i < 16; ++i) {
    ModuleUse module;
    module.name = "layers." + std::to_string(i);
    module.current.bytes[static_cast<size_t>(Category::kActivations)] = (i + 1) * kMiB;
    failure.held.modules.push_back(module);
  }
  failure.asked = 100 * kMiB;
  failure.in_forward = true;
  failure.module = "layers.15";
  failure.available = 40 * kMiB;
  failure.capacity = 1400 * kMiB;
  failure.limit = "RLIMIT_AS";
  failure.rank = 2;
  failure.world_size = 4;
  return failure;
}

int64_t saving(const OutOfMemory& failure, const std::string& word) {
  for (const Saving& saving : possible_savings(failure)) {
    if (saving.change.find(word) != std::string::npos) return saving.bytes;
  }
  return 0;
}

TEST(OutOfMemory, SavingsFollowTheirFormulas) {
  const OutOfMemory failure = example();
  EXPECT_EQ(saving(failure, "half the batch"), 500 * kMiB);  // (900 + 100) / 2
  EXPECT_EQ(saving(failure, "bfloat16"), 500 * kMiB);
  EXPECT_EQ(saving(failure, "recompute"), 500 * kMiB);       // 16 modules: 1000 (1 - 2 / 4)
  EXPECT_EQ(saving(failure, "sharded over 4"), 150 * kMiB);  // 200 (1 - 1 / 4)
  EXPECT_EQ(saving(failure, "8 bits"), 150 * kMiB);          // 3/4 of 200
  EXPECT_EQ(saving(failure, "zero_grad"), 100 * kMiB);
  EXPECT_EQ(saving(failure, "where they lie"), 50 * kMiB);  // the smaller of 50 and 100
  const std::vector<Saving> all = possible_savings(failure);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; }));
}

TEST(OutOfMemory, OffersOnlyWhatApplies) {
  OutOfMemory failure = example();
  failure.in_forward = false;
  failure.world_size = 1;
  failure.held.modules.resize(4);
  EXPECT_EQ(saving(failure, "half the batch"), 450 * kMiB);  // the request is no activation
  EXPECT_EQ(saving(failure, "zero_grad"), 0);
  EXPECT_EQ(saving(failure, "recompute"), 0);  // four modules: nothing is won
  EXPECT_EQ(saving(failure, "sharded over 2"), 100 * kMiB);
  failure.held.current = {};
  EXPECT_TRUE(possible_savings(failure).empty());
}

TEST(OutOfMemory, SaysWhoHoldsWhatAndWhatWouldBeEnough) {
  OutOfMemory failure = example();
  failure.error = "DefaultCPUAllocator: can't allocate memory";
  std::string text = out_of_memory_text(failure);
  EXPECT_THAT(text,
              HasSubstr("[memory.step] rank 2/4: out of memory: 100.0 MiB were asked for by an operator of module "
                        "'layers.15' in forward, 40.0 MiB of 1.4 GiB were left (RLIMIT_AS)."));
  EXPECT_THAT(text, HasSubstr("activations 900.0 MiB"));
  EXPECT_THAT(text, HasSubstr("in all 1.3 GiB"));
  EXPECT_THAT(text, HasSubstr("largest modules: layers.15 16.0 MiB, layers.14 15.0 MiB, layers.13 14.0 MiB"));
  EXPECT_THAT(text, HasSubstr("1. half the batch, with gradients added up over two: saves about 500.0 MiB (enough)"));
  EXPECT_THAT(text, HasSubstr("3. "));
  EXPECT_THAT(text, Not(HasSubstr("4. ")));
  EXPECT_THAT(text, HasSubstr("The allocator's words: DefaultCPUAllocator"));
  failure.asked = 1000 * kMiB;  // 960 are missing
  EXPECT_THAT(out_of_memory_text(failure), HasSubstr("(not enough alone)"));
}

TEST(OutOfMemory, ARequestBeyondAllMemoryIsAWrongShape) {
  OutOfMemory failure = example();
  failure.asked = int64_t{1} << 45;
  const std::string text = out_of_memory_text(failure);
  EXPECT_THAT(text, HasSubstr("probably a shape is wrong"));
  EXPECT_THAT(text, Not(HasSubstr("half the batch")));
}

TEST(OutOfMemory, ShowsTheFragmentationOfADevice) {
  OutOfMemory failure = example();
  DeviceUse device;
  device.device = "cuda:0";
  device.allocated = 60 * kMiB;
  device.reserved = 100 * kMiB;
  device.inactive_split = 30 * kMiB;
  failure.held.devices.push_back(device);
  EXPECT_THAT(out_of_memory_text(failure),
              HasSubstr("free in pieces: 40.0 MiB, of which 30.0 MiB cannot be given back"));
}

TEST(OutOfMemory, LooksAtTheLimitsOfThisProcess) {
  OutOfMemory failure;
  look_at_limits(failure);
  EXPECT_GT(failure.capacity, 0);
  EXPECT_GT(failure.available, 0);
  EXPECT_LE(failure.available, failure.capacity);
  EXPECT_FALSE(failure.limit.empty());
}

}  // namespace
}  // namespace trireme::memory
