// The time model: terms against hand-computed values, and properties that must hold whatever the constants are.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "plan/numbers.h"

namespace trireme::plan {
namespace {

MachineNumbers machine() {
  MachineNumbers m;
  m.linear = m.plain = FlopsPerSecond{200e12};
  m.half_depth = 0;
  m.processors = 100;
  m.memory = BytesPerSecond{1e12};
  m.attention = FlopsPerSecond{100e12};
  m.batched = FlopsPerSecond{100e12};
  m.element = Bytes{2};
  m.link = BytesPerSecond{200e9};
  m.link_latency = Seconds{0};
  m.memory_bytes = Bytes{80e9};
  m.domain = m.per_host = 8;
  m.network = BytesPerSecond{100e9};
  m.launch = Seconds{0};
  m.peak = FlopsPerSecond{300e12};
  return m;
}

ModelDesc model(int64_t layers = 8, int64_t hidden = 1024, int64_t heads = 16, int64_t width = 4096,
                bool gated = false) {
  ModelDesc m;
  m.name = "test";
  m.hidden = hidden;
  m.vocab = 32000;
  TransformerLayer layer;
  layer.attention.heads = layer.attention.kv_heads = heads;
  layer.attention.head_dim = layer.attention.value_dim = hidden / heads;
  layer.feed_forward = FeedForward{width, gated, false};
  m.layers = {{layer, layers, 0}};
  return m;
}

TrainingNumbers training(double batch = 64, double sequence = 1024) {
  TrainingNumbers t;
  t.global_batch = batch;
  t.sequence = sequence;
  return t;
}

Plan plan(int64_t dp, int64_t tp, int64_t pp, int64_t micro = 1) {
  Plan p;
  p.dp = dp;
  p.tp = tp;
  p.pp = pp;
  p.micro_batch = micro;
  return p;
}

// Oracle: by hand. 2560 x 1280 in tiles of 256 x 128 is 10 x 10 = 100 tiles: one full wave of 100 processors, so 2 m n k / rate exactly;
// a depth of k0 halves the rate.
TEST(TimeModel, APoductThatFillsOneWaveTakesItsOperationsOverTheRate) {
  MachineNumbers m = machine();
  const double ideal = 2.0 * 2560 * 1280 * 512 / 200e12;
  EXPECT_DOUBLE_EQ(matmul_seconds(m, FlopsPerSecond{200e12}, 2560, 1280, 512).value, ideal);
  m.half_depth = 512;
  EXPECT_DOUBLE_EQ(matmul_seconds(m, FlopsPerSecond{200e12}, 2560, 1280, 512).value, 2 * ideal);
}

// Oracle: by hand. 101 tiles need a second wave: 0.7 x 2 + 0.3 x 1.01 waves of 256 x 128 tiles; smaller tiles (202 of 128 x 128 at 0.93: 0.7 x 3
// + 0.3 x 2.02 waves of half the work) are not better.
TEST(TimeModel, OneTileTooManyCostsMostOfAWave) {
  const MachineNumbers m = machine();
  const double wave = 2.0 * 256 * 128 * 512 * 100 / 200e12;
  const double large = (0.7 * 2 + 0.3 * 1.01) * wave, half = (0.7 * 3 + 0.3 * 2.02) * wave / 2 / 0.93,
               quarter = (0.7 * 5 + 0.3 * 4.04) * wave / 4 / 0.8;
  EXPECT_NEAR(matmul_seconds(m, FlopsPerSecond{200e12}, 256, 128 * 101, 512).value, std::min({large, half, quarter}),
              1e-12);
}

// Oracle: by hand. In a host: latency (1 + log2(8) / 2) + 2 x 7/8 x bytes / bus; over two hosts of 8 with 8 groups beside each other the network
// carries 2 x 1/2 x bytes x 8 at 100 GB/s, which is longer.
TEST(TimeModel, AllReduceByHand) {
  MachineNumbers m = machine();
  m.link_latency = Seconds{10e-6};
  EXPECT_NEAR(allreduce_seconds(m, Bytes{1e9}, 8, 8, 1).value, 10e-6 * 2.5 + 2 * 7.0 / 8 * 1e9 / 200e9, 1e-12);
  EXPECT_NEAR(allreduce_seconds(m, Bytes{1e9}, 2, 1, 8).value, 2 * 4e-5 * 1 + 1e9 * 8 / 100e9, 1e-12);
  EXPECT_EQ(allreduce_seconds(m, Bytes{1e9}, 1, 1, 1), Seconds{});
}

// Oracle: by hand. A host of two groups of 4 pays for the links between them when all 8 take part, and not when 4 do.
TEST(TimeModel, GroupsOfAHostPayForTheLinksBetweenThem) {
  MachineNumbers m = machine();
  m.group = 4;
  m.group_link = BytesPerSecond{50e9};
  EXPECT_NEAR(allreduce_seconds(m, Bytes{1e9}, 8, 8, 1).value, 2 * 7.0 / 8 * 1e9 / 200e9 + 1e9 / 50e9, 1e-12);
  EXPECT_NEAR(allreduce_seconds(m, Bytes{1e9}, 4, 4, 1).value, 2 * 3.0 / 4 * 1e9 / 200e9, 1e-12);
}

// Oracle: the published splits. 126 layers of Llama 3.1 405B over 8 ranks: 15, 16 x 6, 15; 70 of BLOOM over 12: 5, 6 x 10, 5.
TEST(TimeModel, UnevenStagesLeaveAPlaceForEmbeddingAndHead) {
  for (const auto& [layers, ranks, edge, inner] :
       {std::tuple{126, 8, 15, 16}, std::tuple{70, 12, 5, 6}, std::tuple{106, 12, 8, 9}}) {
    int sum = 0;
    for (int r = 0; r < ranks; ++r) {
      const StageRange s = stage_layers(layers, ranks, r);
      EXPECT_EQ(s.last - s.first, r == 0 || r + 1 == ranks ? edge : inner)
          << layers << " over " << ranks << ", rank " << r;
      EXPECT_EQ(s.first, sum);
      sum = s.last;
    }
    EXPECT_EQ(sum, layers);
  }
}

// Oracle: every layer stands in exactly one stage, whatever the numbers.
TEST(TimeModel, StagesCoverEveryLayerOnce) {
  for (int layers = 1; layers <= 40; ++layers) {
    for (int ranks = 1; ranks <= layers; ++ranks) {
      int at = 0;
      for (int r = 0; r < ranks; ++r) {
        const StageRange s = stage_layers(layers, ranks, r);
        ASSERT_EQ(s.first, at) << layers << " over " << ranks;
        ASSERT_GE(s.last, s.first);
        at = s.last;
      }
      ASSERT_EQ(at, layers);
    }
  }
}

// Oracle: by hand. With equal stages 1F1B takes m + p - 1 stage times; the model's bubble over its whole is (p - 1) / (m + p - 1).
TEST(TimeModel, TheBubbleOfEqualStages) {
  ModelDesc desc = model();
  desc.head = false;
  desc.vocab = 0;
  MachineNumbers m = machine();
  const ModelNumbers numbers = numbers_of(desc);
  const TimeParts t = step_time(numbers, m, training(64), plan(1, 1, 4));
  const double stage = (t.matmul + t.attention + t.elementwise + t.fixed).value / 64;
  EXPECT_NEAR(t.bubble.value, 3 * stage, 0.02 * stage);  // the first stage looks the tokens up as well
  Plan interleaved = plan(1, 1, 4);
  interleaved.virtual_stages = 2;
  EXPECT_NEAR(step_time(numbers, m, training(64), interleaved).bubble.value, t.bubble.value / 2, 1e-12);
}

// Oracle: counted products. One dense layer's six products forward, twelve backward: 3 x 2 x tokens x weights at the rate, when all fill their waves.
TEST(TimeModel, ProductsOfALayerMatchItsWeights) {
  ModelDesc desc = model(1, 8192, 64, 32768);
  MachineNumbers m = machine();
  m.processors = 1;  // no wave is ever partly empty
  const ModelNumbers numbers = numbers_of(desc);
  const TimeParts t = step_time(numbers, m, training(1, 4096), plan(1, 1, 1));
  const double weights = 12.0 * 8192 * 8192;
  EXPECT_NEAR(t.matmul.value, 3 * 2 * 4096 * weights / 200e12, 1e-9);
}

// Oracle: monotonicity, over 2,000 seeded plans and machines: a faster part never makes the step slower.
TEST(TimeModel, MoreOfAnythingIsNeverSlower) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<int64_t> values) { return *(values.begin() + random() % values.size()); };
  int tried = 0;
  for (int i = 0; i < 2000; ++i) {
    ModelDesc desc = model(pick({4, 8, 16}), pick({512, 1024, 4096}), 16, pick({2048, 4096, 16384}), random() % 2 == 0);
    Plan p = plan(pick({1, 2, 8}), pick({1, 2, 8}), pick({1, 2, 4}), pick({1, 2}));
    p.zero_stage = static_cast<int>(random() % 4);
    p.recompute = random() % 2 == 0 ? Recompute::kNone : Recompute::kFull;
    MachineNumbers m = machine();
    m.launch = Seconds{1e-5};
    m.link_latency = Seconds{2e-5};
    m.hides_gradients = random() % 2 == 0;
    m.overlap = 0.5;
    m.fused_attention = random() % 2 == 0;
    const ModelNumbers numbers = numbers_of(desc);
    if (check_plan(numbers, training(), p) != PlanFault::kNone) continue;
    ++tried;
    const double before = step_time(numbers, m, training(), p).total().value;
    ASSERT_TRUE(std::isfinite(before) && before > 0);
    const auto check = [&](const MachineNumbers& faster) {
      EXPECT_LE(step_time(numbers, faster, training(), p).total().value, before * (1 + 1e-12));
    };
    const auto doubled = [&](auto... fields) {
      const auto one = [&](auto field) {
        MachineNumbers faster = m;
        faster.*field *= 2;
        check(faster);
      };
      (one(fields), ...);
    };
    doubled(&MachineNumbers::linear, &MachineNumbers::plain, &MachineNumbers::memory, &MachineNumbers::attention,
            &MachineNumbers::batched, &MachineNumbers::link, &MachineNumbers::network);
    for (Seconds MachineNumbers::* field : {&MachineNumbers::launch, &MachineNumbers::link_latency}) {
      MachineNumbers faster = m;
      faster.*field /= 2;
      check(faster);
    }
  }
  EXPECT_GT(tried, 1000);
}

// Oracle: the sum. What estimate() explains adds up to what it tells, and is what the quick path tells.
TEST(TimeModel, TermsSumToTheStep) {
  Machine m;
  m.device.name = "d";
  m.device.peak_flops["bf16"].value = 300e12;
  m.device.matmul_efficiency.value = 0.7;
  m.device.memory_bandwidth.value = 2e12;
  m.device.memory_efficiency.value = 0.8;
  m.device.attention_efficiency.value = 0.3;
  m.device.link_bandwidth.value = 300e9;
  m.device.link_efficiency.value = 0.8;
  m.device.memory_bytes.value = 80e9;
  m.device.processors.value = 100;
  m.cluster.host_network.value = 100e9;
  m.cluster.network_efficiency.value = 0.8;
  m.cluster.launch_seconds.value = 2e-5;
  Training t;
  t.global_batch = 64;
  t.sequence = 1024;
  const auto e = estimate(model(), m, t, plan(2, 2, 4));
  ASSERT_TRUE(e.ok()) << e.reason();
  Result<Estimate> copy = e;
  double sum = 0;
  for (const Term& term : copy.value().time) {
    sum += term.value;
    EXPECT_FALSE(term.formula.empty()) << term.name;
  }
  EXPECT_NEAR(sum, copy.value().step_seconds, 1e-9 * sum);
  for (const StageMemory& stage : copy.value().memory) {
    double bytes = 0;
    for (const Term& term : stage.terms) bytes += term.value;
    EXPECT_NEAR(bytes, stage.total(), 1);
  }
  const TimeParts quick = step_time(numbers_of(model()), numbers_of(m, t), numbers_of(t), plan(2, 2, 4));
  EXPECT_DOUBLE_EQ(copy.value().step_seconds, quick.total().value);
}

// Oracle: each fault by a plan that has only it, and its text carries the numbers.
TEST(CheckPlan, NamesWhatIsWrong) {
  const ModelNumbers numbers = numbers_of(model());
  const auto fault = [&](const Plan& p, double batch = 64, double sequence = 1024) {
    return check_plan(numbers, training(batch, sequence), p);
  };
  EXPECT_EQ(fault(plan(2, 2, 4)), PlanFault::kNone);
  EXPECT_EQ(fault(plan(0, 1, 1)), PlanFault::kDegree);
  EXPECT_EQ(fault(plan(3, 1, 1)), PlanFault::kBatch);
  EXPECT_EQ(fault(plan(1, 3, 1)), PlanFault::kHeads);
  EXPECT_EQ(fault(plan(1, 1, 16)), PlanFault::kLayers);
  Plan p = plan(1, 1, 1);
  p.ep = 2;
  EXPECT_EQ(fault(p), PlanFault::kExperts);
  p = plan(1, 1, 1);
  p.virtual_stages = 2;
  EXPECT_EQ(fault(p), PlanFault::kInterleaving);
  p = plan(1, 1, 1);
  p.cp = 3;
  EXPECT_EQ(fault(p), PlanFault::kSequence);
  EXPECT_NE(text_of(PlanFault::kHeads, numbers, training(), plan(1, 3, 1)).find("16 heads are no multiple of tp 3"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::plan
