// Oracle: every combination tried by the test's own loops, and properties that must hold whatever the constants are.
#include "plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "plan/plan_text.h"
#include "plan/smallest_change.h"

namespace trireme::plan {
namespace {

ModelDesc small_model() {
  ModelDesc model;
  model.name = "small";
  model.hidden = 1024;
  model.vocab = 32000;
  TransformerLayer layer;
  layer.attention = {.heads = 16, .kv_heads = 8, .head_dim = 64, .value_dim = 64};
  layer.feed_forward = {.width = 4096, .gated = true};
  model.layers = {{.layer = layer, .count = 24}};
  return model;
}

Sourced made(double value) { return {.value = value, .source = "made up", .fitted = false}; }

Machine machine(double gigabytes, double network = 50e9) {
  Machine m;
  m.device.name = "test";
  m.device.peak_flops["bf16"] = made(300e12);
  m.device.memory_bytes = made(gigabytes * 1e9);
  m.device.memory_bandwidth = made(2e12);
  m.device.processors = made(108);
  m.device.link_bandwidth = made(300e9);
  m.device.matmul_efficiency = made(0.7);
  m.device.matmul_half_depth = made(100);
  m.device.memory_efficiency = made(0.8);
  m.device.attention_efficiency = made(0.4);
  m.device.batched_efficiency = made(0.7);
  m.device.low_precision_efficiency = made(0.5);
  m.device.link_efficiency = made(0.8);
  m.cluster.hosts = 2;
  m.cluster.devices_per_host = 8;
  m.cluster.host_network = made(network);
  m.cluster.launch_seconds = made(1e-5);
  m.cluster.link_latency = made(3e-5);
  m.cluster.network_efficiency = made(0.9);
  m.software.attention_generation = made(1);
  m.software.overlap = made(0.5);
  m.software.framework_rate = made(1);
  return m;
}

Training training() {
  Training t;
  t.global_batch = 64;
  t.sequence = 2048;
  return t;
}

struct Numbers {
  explicit Numbers(const Machine& m) : machine(numbers_of(m, plan::training())) {}
  ModelNumbers model = numbers_of(small_model());
  MachineNumbers machine;
  TrainingNumbers training = numbers_of(plan::training());
};

TEST(Search, FindsWhatTryingEverythingFinds) {
  const Numbers n(machine(12));
  const SearchResult result = search(n.model, n.machine, n.training, 16, {}, 3);
  double fastest = std::numeric_limits<double>::infinity();
  int64_t fitting = 0;
  for (int64_t tp = 1; tp <= 8; ++tp) {
    for (int64_t pp = 1; pp <= 16; ++pp) {
      for (int64_t cp = 1; cp <= 16; ++cp) {
        if (16 % (tp * pp * cp) != 0) continue;
        for (int64_t b = 1; b <= 64; ++b) {
          for (const int64_t v : {1, 2, 3, 4, 5, 6, 8, 10, 12}) {
            for (int zero = 0; zero <= 3; ++zero) {
              for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
                Plan p = {.dp = 16 / tp / pp / cp, .tp = tp, .pp = pp, .cp = cp, .micro_batch = b, .virtual_stages = v};
                p.recompute = recompute;
                p.zero_stage = zero;
                p.sequence_parallel = tp > 1;
                if ((zero > 0 && p.dp * cp == 1) || (v > 1 && pp == 1)) continue;
                const bool several = b * p.dp < 64;
                if ((zero > 1 && pp > 1) || (zero == 2 && several)) continue;
                if (check_plan(n.model, n.training, p) != PlanFault::kNone) continue;
                if (peak_memory(n.model, n.machine, n.training, p).parts.total() > 0.9 * 12e9) continue;
                ++fitting;
                fastest = std::min(fastest, step_time(n.model, n.machine, n.training, p).total());
              }
            }
          }
        }
      }
    }
  }
  ASSERT_FALSE(result.best.empty());
  EXPECT_GT(fitting, 0);
  EXPECT_EQ(result.costed, fitting);
  EXPECT_DOUBLE_EQ(result.best.front().seconds, fastest);
  EXPECT_GT(result.rejected[static_cast<size_t>(Rejected::kMemory)], 0);
}

TEST(Search, EveryPlanIsCountedOnce) {
  const Numbers n(machine(12));
  const SearchResult result = search(n.model, n.machine, n.training, 16, {}, 1);
  int64_t rejected = 0;
  for (const int64_t number : result.rejected) rejected += number;
  EXPECT_EQ(rejected + result.costed, result.considered);
}

TEST(Search, MoreMemoryNeverLeavesFewerPlans) {
  int64_t before = 0;
  for (const double gigabytes : {4.0, 6.0, 8.0, 12.0, 24.0, 80.0}) {
    const Numbers n(machine(gigabytes));
    const SearchResult result = search(n.model, n.machine, n.training, 16, {}, 1);
    EXPECT_GE(result.costed, before) << gigabytes;
    before = result.costed;
  }
  EXPECT_GT(before, 0);
}

TEST(Search, MoreBandwidthIsNeverSlower) {
  double before = std::numeric_limits<double>::infinity();
  for (const double network : {1e9, 5e9, 25e9, 100e9, 400e9}) {
    const Numbers n(machine(12, network));
    const double fastest = search(n.model, n.machine, n.training, 16, {}, 1).best.front().seconds;
    EXPECT_LE(fastest, before) << network;
    before = fastest;
  }
}

// Four ranks a stage on hosts of eight: the boundary between the second and the third stage crosses the network.
TEST(TimeModel, PipelineThatLeavesItsHostPaysForTheNetwork) {
  const Plan plan = {.dp = 4, .pp = 4};
  const Numbers fast(machine(80, 50e9));
  const Numbers slow(machine(80, 50e6));
  EXPECT_GT(step_time(slow.model, slow.machine, slow.training, plan).pipeline,
            10 * step_time(fast.model, fast.machine, fast.training, plan).pipeline);
}

TEST(Search, ParetoPlansAreNotBeatenByAny) {
  const Numbers n(machine(24));
  const SearchResult result = search(n.model, n.machine, n.training, 16, {}, std::numeric_limits<size_t>::max());
  ASSERT_GT(result.pareto.size(), 1U);
  for (const Candidate& front : result.pareto) {
    for (const Candidate& other : result.best) {
      EXPECT_FALSE(other.seconds < front.seconds && other.bytes < front.bytes)
          << describe(front.plan) << " by " << describe(other.plan);
    }
  }
}

TEST(Search, ObeysWhatIsFixed) {
  const Numbers n(machine(80));
  Constraints c;
  c.tp = {2, 4};
  c.max_pp = 2;
  c.recompute = {Recompute::kFull};
  c.zero_stage = {1};
  const SearchResult result = search(n.model, n.machine, n.training, 16, c, std::numeric_limits<size_t>::max());
  ASSERT_FALSE(result.best.empty());
  for (const Candidate& candidate : result.best) {
    EXPECT_THAT(candidate.plan.tp, testing::AnyOf(2, 4));
    EXPECT_LE(candidate.plan.pp, 2);
    EXPECT_EQ(candidate.plan.recompute, Recompute::kFull);
    EXPECT_EQ(candidate.plan.zero_stage, 1);
  }
  EXPECT_GT(result.rejected[static_cast<size_t>(Rejected::kConstraint)], 0);
}

TEST(Search, TellsByHowMuchTheNearestFails) {
  const Numbers n(machine(1));
  const SearchResult result = search(n.model, n.machine, n.training, 1, {}, 1);
  EXPECT_TRUE(result.best.empty());
  ASSERT_TRUE(result.nearest);
  EXPECT_DOUBLE_EQ(result.nearest->bytes,
                   peak_memory(n.model, n.machine, n.training, result.nearest->plan).parts.total());
  EXPECT_GT(result.nearest->bytes, result.limit_bytes);
}

TEST(SmallestChange, FitsAndChangesNoMoreThanAnyOtherThatFits) {
  const Numbers n(machine(12));
  const Plan base = {.dp = 16};
  ASSERT_GT(peak_memory(n.model, n.machine, n.training, base).parts.total(), 0.9 * 12e9);
  const auto least = smallest_change(n.model, n.machine, n.training, 16, {}, base, 16);
  ASSERT_TRUE(least);
  EXPECT_LE(least->to.bytes, 0.9 * 12e9);
  EXPECT_EQ(least->changes, 1) << describe(least->to.plan);
}

TEST(SmallestChange, TakesMoreDevicesOnlyWhereNoPlanFits) {
  const Numbers n(machine(3));
  const auto least = smallest_change(n.model, n.machine, n.training, 1, {}, {.dp = 1}, 64);
  ASSERT_TRUE(least);
  EXPECT_GT(least->devices, 1);
  EXPECT_TRUE(search(n.model, n.machine, n.training, least->devices / 2, {}, 1).best.empty());
}

TEST(PlanText, NamesWhatDiffers) {
  const Plan a = {.dp = 8, .tp = 2};
  const Plan b = {.dp = 4, .tp = 4, .micro_batch = 2};
  EXPECT_THAT(changes(a, b),
              testing::ElementsAre("dp 4 instead of 8", "tp 4 instead of 2", "micro-batch 2 instead of 1"));
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(seconds_text(0.0125), "12.5 ms");
  EXPECT_EQ(count_text(70553706496), "70.6 B");
}

}  // namespace
}  // namespace trireme::plan
