// The memory model: terms against hand-computed bytes, and what must hold for every plan.
#include <gtest/gtest.h>

#include <random>

#include "plan/numbers.h"

namespace trireme::plan {
namespace {

ModelDesc llama(int64_t layers) {
  ModelDesc m;
  m.hidden = 8192;
  m.vocab = 128256;
  TransformerLayer layer;
  layer.attention.heads = 64;
  layer.attention.kv_heads = 8;
  layer.attention.head_dim = layer.attention.value_dim = 128;
  layer.feed_forward = FeedForward{28672, true, false};
  m.layers = {{layer, layers, 0}};
  m.last_parameters = 8192;
  return m;
}

MachineNumbers machine() {
  MachineNumbers m;
  m.element = Bytes{2};
  m.fused_attention = m.fused_loss = m.fused_norms = true;
  return m;
}

TrainingNumbers training() {
  TrainingNumbers t;
  t.global_batch = 16;
  t.sequence = 4096;
  return t;
}

// Oracle: by hand. 12 layers of Llama 3 70B on one rank of a pipeline of 2 with 4 replicas, distributed optimizer.
TEST(MemoryModel, ByHand) {
  Plan p;
  p.dp = 4;
  p.pp = 2;
  p.zero_stage = 1;
  const MemoryParts m = stage_memory(numbers_of(llama(12)), machine(), training(), p, 0);
  const double h = 8192, layer = h * h * (2 + 2 * 8.0 / 64) + 3 * h * 28672 + 2 * h;
  const double vocab = 128256;  // 1002 x 128: no padding
  const double parameters = 6 * layer + vocab * h;
  EXPECT_DOUBLE_EQ(m.weights.value, 2 * parameters);
  EXPECT_DOUBLE_EQ(m.gradients.value, 4 * parameters);
  EXPECT_DOUBLE_EQ(m.optimizer.value, 12 * parameters / 4);
  // Two micro-steps in flight on the first of two stages; U (6 + 2 k / a + 3 f / h) with U = s h 2 B.
  EXPECT_DOUBLE_EQ(m.activations.value, 2 * 6 * 4096 * h * 2 * (6 + 2 * 8.0 / 64 + 3 * 28672 / h));
  // The widest layer: 4 B x 2 h f for the weight gradient and 2 (f / h) U.
  EXPECT_DOUBLE_EQ(m.temporaries.value, 4 * 2 * h * 28672 + 2 * 28672 * 4096.0 * 2);
}

// Oracle: by hand. The last stage's head: 4 B x V h and 4 B x tokens x V, when that is more than the widest layer's.
TEST(MemoryModel, TheHeadStandsOnTopOfTheLastStage) {
  Plan p;
  p.dp = 4;
  p.pp = 2;
  p.zero_stage = 1;
  const MemoryParts m = stage_memory(numbers_of(llama(12)), machine(), training(), p, 1);
  EXPECT_DOUBLE_EQ(m.temporaries.value, 4.0 * 128256 * 8192 + 4.0 * 4096 * 128256);
}

// Oracle: definition. Full recomputation keeps the input of each layer, and one whole layer on top.
TEST(MemoryModel, FullRecomputationKeepsInputs) {
  Plan p;
  p.recompute = Recompute::kFull;
  const MemoryParts m = stage_memory(numbers_of(llama(12)), machine(), training(), p, 0);
  EXPECT_DOUBLE_EQ(m.activations.value, 12 * 4096 * 8192 * 2);
}

// Oracle: arXiv:2405.04434's layout. Experts with as many ranks as copies (ep = dp) have one replica each: their 12 B are not sharded.
TEST(MemoryModel, ExpertsHaveTheirOwnReplicas) {
  ModelDesc model = llama(1);
  model.vocab = 0;
  model.head = false;
  model.last_parameters = 0;
  model.layers[0].layer.feed_forward.reset();
  model.layers[0].layer.experts = Experts{.count = 64, .active = 6, .width = 1024};
  Plan p;
  p.dp = 8;
  p.ep = 8;
  p.zero_stage = 1;
  const ModelNumbers numbers = numbers_of(model);
  const MemoryParts m = stage_memory(numbers, machine(), training(), p, 0);
  const double experts = numbers.kinds[0].expert_weights / 8,
               rest = numbers.kinds[0].split + numbers.kinds[0].replicated;
  EXPECT_DOUBLE_EQ(experts, 8.0 * 3 * 8192 * 1024);
  EXPECT_DOUBLE_EQ(m.optimizer.value, 12 * (rest / 8 + experts));
}

// Oracle: a higher stage of ZeRO, more recomputation, more tensor-parallel ranks never need more, over seeded plans.
TEST(MemoryModel, SavingSaves) {
  std::mt19937 random(11);
  const ModelNumbers model = numbers_of(llama(16));
  for (int i = 0; i < 500; ++i) {
    Plan p;
    p.dp = int64_t{1} << (random() % 4);
    p.tp = int64_t{1} << (random() % 3);
    p.pp = int64_t{1} << (random() % 3);
    p.sequence_parallel = p.tp > 1;
    MachineNumbers m = machine();
    m.fused_attention = random() % 2 == 0;
    const auto bytes = [&](const Plan& plan) { return peak_memory(model, m, training(), plan).parts.total().value; };
    const double before = bytes(p);
    for (int stage = 1; stage <= 2; ++stage) {
      Plan less = p;
      less.zero_stage = stage;
      EXPECT_LE(bytes(less), before);
    }
    Plan selective = p, full = p;
    selective.recompute = Recompute::kSelective;
    full.recompute = Recompute::kFull;
    EXPECT_LE(bytes(selective), before * 1.02);  // the working set of one layer may stand on top of little else
    EXPECT_LE(bytes(full), before * 1.02);
  }
}

}  // namespace
}  // namespace trireme::plan
