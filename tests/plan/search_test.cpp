// Oracle: every combination tried by the test's own loops, and properties that must hold whatever the constants are.
#include "plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "plan/mixed_search.h"
#include "plan/plan_text.h"
#include "small_case.h"

namespace trireme::plan {
namespace {

TEST(Search, FindsWhatTryingEverythingFinds) {
  const Numbers n(machine(12));
  Constraints even;
  even.even_stages = true;
  even.schedule = {"1f1b", "interleaved"};
  const SearchResult result = search(n.model, n.machine, n.training, 16, even, 3);
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
                if (v > 1 && 24 % (pp * v) != 0 && 26 % (pp * v) != 0) continue;
                if (check_plan(n.model, n.training, p) != PlanFault::kNone) continue;
                if (peak_memory(n.model, n.machine, n.training, p).parts.total().value > 0.9 * 12e9) continue;
                ++fitting;
                fastest = std::min(fastest, step_time(n.model, n.machine, n.training, p).total().value);
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

// Oracle: the search that leaves nothing out. What is skipped as hopeless is neither among the best layouts nor, of even stages, one that no
// other beats in both time and memory.
TEST(Search, WhatIsSkippedIsNotMissed) {
  for (const double gigabytes : {6.0, 12.0, 80.0}) {
    for (const bool even_stages : {true, false}) {
      const Numbers n(machine(gigabytes));
      Constraints constraints;
      constraints.even_stages = even_stages;
      const SearchResult all =
          search(n.model, n.machine, n.training, 16, constraints, std::numeric_limits<size_t>::max());
      SearchOptions options;
      options.keep = 5;
      options.one_of_each_layout = true;
      const SearchResult some = search(n.model, n.machine, n.training, 16, constraints, options);
      EXPECT_LT(some.costed, all.costed);
      if (even_stages) {
        EXPECT_EQ(some.considered, all.considered);
        EXPECT_EQ(some.costed + some.rejected[static_cast<size_t>(Rejected::kSlower)], all.costed);
        ASSERT_EQ(some.pareto.size(), all.pareto.size()) << gigabytes;
        for (size_t i = 0; i < all.pareto.size(); ++i)
          EXPECT_EQ(describe(some.pareto[i].plan), describe(all.pareto[i].plan)) << gigabytes;
      }
      std::vector<Candidate> layouts;
      for (const Candidate& c : all.best) {
        const auto same = [&c](const Candidate& other) {
          return std::tie(c.plan.dp, c.plan.tp, c.plan.pp, c.plan.cp, c.plan.ep) ==
                 std::tie(other.plan.dp, other.plan.tp, other.plan.pp, other.plan.cp, other.plan.ep);
        };
        if (std::none_of(layouts.begin(), layouts.end(), same)) layouts.push_back(c);
      }
      ASSERT_GE(layouts.size(), some.best.size());
      for (size_t i = 0; i < some.best.size(); ++i) EXPECT_EQ(some.best[i].seconds, layouts[i].seconds) << gigabytes;
    }
  }
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

// An uneven split is there to be faster or to fit: never slower than the even one, and it finds plans where no even one fits.
TEST(Search, UnevenStagesAreNeverSlowerThanEvenOnes) {
  const Numbers n(machine(12));
  Constraints even;
  even.pp = {4, 16};
  even.virtual_stages = {1};
  even.even_stages = true;
  Constraints any = even;
  any.even_stages = false;
  const SearchResult one = search(n.model, n.machine, n.training, 16, even, std::numeric_limits<size_t>::max());
  const SearchResult both = search(n.model, n.machine, n.training, 16, any, std::numeric_limits<size_t>::max());
  ASSERT_FALSE(one.best.empty());
  EXPECT_LT(both.best.front().seconds, one.best.front().seconds);
  EXPECT_GT(both.costed, one.costed);
  int uneven = 0;
  for (const Candidate& c : both.best) {
    if (c.plan.stage_layers.empty()) continue;
    ++uneven;
    int layers = 0;
    for (const int count : c.plan.stage_layers) layers += count;
    EXPECT_EQ(layers, 24);
    EXPECT_EQ(check_plan(n.model, n.training, c.plan), PlanFault::kNone);
    EXPECT_LE(peak_memory(n.model, n.machine, n.training, c.plan).parts.total().value, both.limit_bytes);
    EXPECT_DOUBLE_EQ(step_time(n.model, n.machine, n.training, c.plan).total().value, c.seconds);
  }
  EXPECT_GT(uneven, 0);
}

// Each axis that is off by default: with it named, nothing that was there is lost, and the properties hold.
TEST(Search, NamedAxesAddPlansAndKeepTheProperties) {
  Constraints more;
  more.bucket_bytes = {1 << 20, 100 << 20};
  more.shard_ranks = {4, 8};
  more.compression = {0.25};
  more.offload_optimizer = true;
  more.schedule = {"1f1b", "zb1p", "zb2p", "zbv"};
  double slower = std::numeric_limits<double>::infinity();
  for (const double network : {1e9, 25e9, 400e9}) {
    Machine m = machine(12, network);
    m.device.host_link = made(25e9);
    const Numbers n(m);
    const SearchResult plain = search(n.model, n.machine, n.training, 16, {}, 1);
    const SearchResult result = search(n.model, n.machine, n.training, 16, more, std::numeric_limits<size_t>::max());
    int64_t rejected = 0;
    for (const int64_t number : result.rejected) rejected += number;
    EXPECT_EQ(rejected + result.costed, result.considered);
    EXPECT_GT(result.costed, plain.costed);
    EXPECT_LE(result.best.front().seconds, slower) << network;
    slower = result.best.front().seconds;
    int bucket = 0, shard = 0, compressed = 0, host = 0, zero_bubble = 0;
    for (const Candidate& c : result.best) {
      bucket += c.plan.bucket_bytes > 0;
      shard += c.plan.shard_ranks > 0;
      compressed += c.plan.compression < 1;
      host += c.plan.offload_optimizer;
      zero_bubble += c.plan.schedule.starts_with("zb");
      EXPECT_DOUBLE_EQ(step_time(n.model, n.machine, n.training, c.plan).total().value, c.seconds);
    }
    for (const int number : {bucket, shard, compressed, host, zero_bubble}) EXPECT_GT(number, 0);
  }
  int64_t before = 0;
  for (const double gigabytes : {4.0, 8.0, 12.0, 24.0}) {
    Machine m = machine(gigabytes);
    m.device.host_link = made(25e9);
    const Numbers n(m);
    const int64_t costed = search(n.model, n.machine, n.training, 16, more, 1).costed;
    EXPECT_GE(costed, before) << gigabytes;
    before = costed;
  }
}

// ZeRO 2 reduces in each micro-step: by hand, m - 1 reduce-scatters more than ZeRO 1.
TEST(TimeModel, ZeroTwoReducesInEachMicroStep) {
  const Numbers n(machine(80));
  const Plan one = {.dp = 16, .micro_batch = 1, .zero_stage = 1};
  Plan two = one;
  two.zero_stage = 2;
  const double parameters = static_cast<double>(total_parameters(small_model())) - 24 * 2 * 1024 - 1024;
  const double scattered = gather_seconds(n.machine, Bytes{4} * parameters, 16, 8, 1).value;
  EXPECT_NEAR(step_time(n.model, n.machine, n.training, two).total().value -
                  step_time(n.model, n.machine, n.training, one).total().value,
              3 * scattered, 0.01 * scattered);
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
  c.pp_within.most = 2;
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
                   peak_memory(n.model, n.machine, n.training, result.nearest->plan).parts.total().value);
  EXPECT_GT(result.nearest->bytes, result.limit_bytes);
}

// Hosts that are alike but described as two kinds: replicas beside each other cost what the equal cluster's cost.
TEST(MixedSearch, EqualKindsCostWhatTheEqualClusterCosts) {
  const Numbers n(machine(12));
  const std::vector<DeviceGroup> halves = {{n.machine, 8}, {n.machine, 8}};
  Constraints c;
  c.schedule = {"1f1b", "zb1p"};
  c.even_stages = true;
  const SearchResult one = search(n.model, n.machine, n.training, 16, c, std::numeric_limits<size_t>::max());
  int compared = 0;
  for (const Candidate& candidate : one.best) {
    Plan plan = candidate.plan;
    const int64_t steps = 64 / plan.dp / plan.micro_batch;
    if (plan.virtual_stages > 1 || plan.dp % 2 != 0) continue;
    plan.replicas = {{.group = 0, .count = plan.dp / 2, .micro_steps = steps, .shorter = 0},
                     {.group = 1, .count = plan.dp / 2, .micro_steps = steps, .shorter = 0}};
    const MixedCost cost = mixed_cost(n.model, halves, n.training, plan, 0.1);
    EXPECT_DOUBLE_EQ(cost.time.total().value, candidate.seconds) << describe(plan);
    EXPECT_DOUBLE_EQ(cost.bytes, candidate.bytes) << describe(plan);
    ++compared;
  }
  EXPECT_GT(compared, 10);
  const SearchResult two = search_mixed(n.model, halves, n.training, c, {});
  ASSERT_FALSE(two.best.empty());
  EXPECT_LE(two.best.front().seconds, one.best.front().seconds * (1 + 1e-12));
}

// A kind at half the speed gets fewer micro-steps, fewer layers, and makes the step slower than an equal one does.
TEST(MixedSearch, SharesFollowSpeedAndMemory) {
  const Numbers fast(machine(24));
  Machine half = machine(24);
  half.device.peak_flops["bf16"] = made(150e12);
  half.device.memory_bandwidth = made(1e12);
  const Numbers slow(half);
  const SearchResult alone = search(fast.model, fast.machine, fast.training, 8, {}, 1);
  const SearchResult equal = search_mixed(fast.model, {{fast.machine, 8}, {fast.machine, 8}}, fast.training, {}, {});
  const std::vector<DeviceGroup> mixed = {{fast.machine, 8}, {slow.machine, 8}};
  const SearchResult result = search_mixed(fast.model, mixed, fast.training, {}, {});
  ASSERT_FALSE(result.best.empty());
  EXPECT_GT(result.best.front().seconds, equal.best.front().seconds);
  EXPECT_LT(result.best.front().seconds, alone.best.front().seconds);
  int beside = 0, through = 0;
  for (const Candidate& c : result.best) {
    EXPECT_LE(c.bytes, c.limit);
    int64_t samples = 0;
    for (const ReplicaShare& s : c.plan.replicas) samples += (s.count * s.micro_steps - s.shorter) * c.plan.micro_batch;
    if (!c.plan.replicas.empty()) {
      ++beside;
      EXPECT_EQ(samples, 64) << describe(c.plan);
      EXPECT_GE(c.plan.replicas[0].micro_steps, c.plan.replicas[1].micro_steps) << describe(c.plan);
    } else {
      ++through;
      int layers = 0;
      for (const int count : c.plan.stage_layers) layers += count;
      EXPECT_EQ(layers, 24);
    }
  }
  EXPECT_GT(beside, 0);
  EXPECT_GT(through, 0);
}

TEST(MixedSearch, MoreMemoryNeverLeavesFewerPlansAndMoreBandwidthIsNeverSlower) {
  int64_t before = 0;
  for (const double gigabytes : {4.0, 8.0, 16.0, 48.0}) {
    const Numbers a(machine(gigabytes));
    const Numbers b(machine(12));
    const SearchResult result = search_mixed(a.model, {{a.machine, 8}, {b.machine, 8}}, a.training, {}, {});
    EXPECT_GE(result.costed, before) << gigabytes;
    before = result.costed;
  }
  double slower = std::numeric_limits<double>::infinity();
  for (const double network : {1e9, 25e9, 400e9}) {
    const Numbers a(machine(24, network));
    const Numbers b(machine(24, 10e9));
    const double seconds =
        search_mixed(a.model, {{a.machine, 8}, {b.machine, 8}}, a.training, {}, {}).best.front().seconds;
    EXPECT_LE(seconds, slower) << network;
    slower = seconds;
  }
}

// By hand: 3 s and 1 s a micro-step, one replica each, 8 micro-steps: 2 and 6 end at 6 s, and no other split ends earlier.
TEST(MixedSearch, MicroStepsGoWhereTheyEndFirst) {
  const std::vector<ReplicaShare> shares = share_micro_steps({3, 1}, {3, 1}, {1, 1}, 8);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[0].micro_steps, 2);
  EXPECT_EQ(shares[1].micro_steps, 6);
  EXPECT_TRUE(share_micro_steps({100, 1}, {100, 1}, {1, 1}, 8).empty());
}

// Networks by operators: data parallel over all devices, at any stage of ZeRO.
TEST(Search, NetworksByOperatorsAreSplitByData) {
  ModelDesc model;
  model.name = "convolutions";
  Operator op;
  op.kind = OperatorKind::kConvolution;
  op.in = op.out = 64;
  op.kernel = 9;
  op.positions = op.in_positions = 3136;
  op.parameters = 36864;
  op.saved = 200704;
  model.operators.assign(20, op);
  const Numbers n(machine(12));
  const ModelNumbers numbers = numbers_of(model);
  const SearchResult result = search(numbers, n.machine, n.training, 16, {}, std::numeric_limits<size_t>::max());
  ASSERT_FALSE(result.best.empty());
  std::array<int, 4> stages{};
  for (const Candidate& c : result.best) {
    EXPECT_EQ(c.plan.dp, 16);
    ++stages[c.plan.zero_stage];
  }
  for (const int number : stages) EXPECT_GT(number, 0);
  EXPECT_GT(result.rejected[static_cast<size_t>(Rejected::kOperators)], 0);
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
