#include "trireme/plan/model_desc.h"

#include <gtest/gtest.h>

#include <random>

namespace trireme::plan {
namespace {

ModelDesc dense(int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t width, int64_t vocab) {
  ModelDesc model;
  model.hidden = hidden;
  model.vocab = vocab;
  TransformerLayer layer;
  layer.attention.heads = heads;
  layer.attention.kv_heads = kv_heads;
  layer.attention.head_dim = hidden / heads;
  layer.feed_forward = FeedForward{width, true, false};
  model.layers = {{layer, layers, 0}};
  model.last_parameters = hidden;
  return model;
}

// Oracle: closed form, by hand for hidden 8, 2 heads of 4, 1 kv head, width 16, vocabulary 10.
TEST(ModelDesc, CountsParametersOfASmallModelByHand) {
  const ModelDesc model = dense(3, 8, 2, 1, 16, 10);
  const LayerParameters layer = parameters_of(model.layers[0].layer, 8);
  EXPECT_EQ(layer.split, 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 16);
  EXPECT_EQ(layer.replicated, 2 * 8);
  EXPECT_EQ(layer.experts, 0);
  EXPECT_EQ(total_parameters(model), 3 * layer.total() + int64_t{2} * 10 * 8 + 8);
}

// Oracle: Llama 2 70B as published, 68,976,648,192; without grouped-query attention it would be 78,371,889,152.
TEST(ModelDesc, CountsGroupedQueryAttention) {
  EXPECT_EQ(total_parameters(dense(80, 8192, 64, 8, 28672, 32000)), 68'976'648'192);
  EXPECT_EQ(total_parameters(dense(80, 8192, 64, 64, 28672, 32000)), 78'371'889'152);
}

// Oracle: closed form. A tied head has the table once; its products stay, and the look-up has none.
TEST(ModelDesc, CountsATiedTableOnceAndItsProductStill) {
  ModelDesc untied = dense(2, 16, 4, 4, 64, 100);
  ModelDesc tied = untied;
  tied.tied = true;
  EXPECT_EQ(total_parameters(untied) - total_parameters(tied), 100 * 16);
  EXPECT_EQ(forward_flops(untied, 32, true), forward_flops(tied, 32, true));
  ModelDesc headless = tied;
  headless.head = false;
  EXPECT_EQ(forward_flops(tied, 32, true) - forward_flops(headless, 32, true), 2.0 * 32 * 100 * 16);
  EXPECT_EQ(total_parameters(headless), total_parameters(tied));
}

// Oracle: 96 B s L h^2 (1 + s / 6h + V / 16 L h) of Narayanan et al. (arXiv:2104.04473, section 3) for one sample is four forward passes of
// a GPT whose scores are counted in full; in double, since the 1T model passes 2^63.
TEST(ModelDesc, AgreesWithTheFormulaOfGpt) {
  ModelDesc model = dense(128, 25600, 160, 160, 102400, 51200);
  model.layers[0].layer.feed_forward->gated = false;
  const double s = 2048, h = 25600, l = 128, v = 51200;
  const double four_passes = 96 * s * l * h * h * (1 + s / (6 * h)) + 8 * s * h * v;
  EXPECT_NEAR(4 * forward_flops(model, 2048, false) / four_passes, 1.0, 1e-12);
}

// Oracle: closed form. A window of the whole sequence is no window; one of w tokens makes the scores linear in the sequence.
TEST(ModelDesc, CountsTheScoresOfAWindow) {
  ModelDesc model = dense(1, 16, 4, 4, 64, 100);
  TransformerLayer& layer = model.layers[0].layer;
  const double causal = forward_flops(layer, 16, 64, true).scores;
  EXPECT_EQ(causal, 0.5 * forward_flops(layer, 16, 64, false).scores);
  EXPECT_EQ(causal, 2.0 * (64.0 * 64.0 / 2) * 4 * 8);
  layer.attention.window = 64;
  EXPECT_EQ(forward_flops(layer, 16, 64, true).scores, causal);
  layer.attention.window = 8;
  EXPECT_EQ(forward_flops(layer, 16, 64, true).scores, 2.0 * (64.0 * 8 - 8.0 * 8 / 2) * 4 * 8);
}

// Oracle: by hand. Experts count whole in the total, the active ones only for a token; the router's product is counted.
TEST(ModelDesc, CountsExperts) {
  ModelDesc model = dense(1, 8, 2, 2, 16, 10);
  TransformerLayer& layer = model.layers[0].layer;
  layer.feed_forward.reset();
  Experts experts;
  experts.count = 4;
  experts.active = 2;
  experts.width = 6;
  experts.shared_width = 5;
  layer.experts = experts;
  EXPECT_EQ(parameters_of(layer, 8).experts, 4 * 3 * 8 * 6);
  EXPECT_EQ(total_parameters(model) - active_parameters(model), 2 * 3 * 8 * 6);
  const LayerFlops flops = forward_flops(layer, 8, 7, true);
  EXPECT_EQ(flops.experts, 2.0 * 7 * 2 * 3 * 8 * 6);
  EXPECT_EQ(flops.projections, 2.0 * 7 * (4 * 8 * 8 + 3 * 8 * 5 + 8 * 4));
}

// Oracle: the table of sizes of DeepSeek-V3 (arXiv:2412.19437): 61 layers, 3 dense; 671 B parameters, 37 B active.
TEST(ModelDesc, CountsLatentAttention) {
  ModelDesc model;
  model.hidden = 7168;
  model.vocab = 129280;
  model.last_parameters = 7168;
  TransformerLayer layer;
  layer.attention.heads = layer.attention.kv_heads = 128;
  layer.attention.head_dim = layer.attention.value_dim = 128;
  layer.attention.rope_dim = 64;
  layer.attention.q_rank = 1536;
  layer.attention.kv_rank = 512;
  layer.feed_forward = FeedForward{18432, true, false};
  model.layers.push_back({layer, 3, 0});
  layer.feed_forward.reset();
  layer.experts = Experts{};
  layer.experts->count = 256;
  layer.experts->active = 8;
  layer.experts->width = layer.experts->shared_width = 2048;
  model.layers.push_back({layer, 58, 0});
  EXPECT_EQ(parameters_of(layer, 7168).replicated + 0, 7168 * 1536 + 1536 + 7168 * 576 + 512 + 7168 * 256 + 2 * 7168);
  EXPECT_NEAR(static_cast<double>(total_parameters(model)), 671e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(model)), 37e9, 1e9);
}

TransformerLayer random_layer(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  TransformerLayer layer;
  Attention& a = layer.attention;
  a.kv_heads = pick(1, 4);
  a.heads = a.kv_heads * pick(1, 4);
  a.head_dim = pick(1, 9);
  a.value_dim = pick(0, 9);
  if (pick(0, 2) == 0) {
    a.kv_rank = pick(1, 9);
    a.q_rank = pick(0, 9);
    a.rope_dim = pick(1, 4);
  }
  a.causal = pick(0, 1) == 1;
  a.qkv_bias = pick(0, 1) == 1;
  a.out_bias = pick(0, 1) == 1;
  a.qk_norm = pick(0, 1) == 1;
  if (pick(0, 1) == 1) layer.feed_forward = FeedForward{pick(1, 99), pick(0, 1) == 1, pick(0, 1) == 1};
  if (pick(0, 1) == 1) {
    layer.experts = Experts{};
    layer.experts->count = pick(1, 9);
    layer.experts->active = pick(1, static_cast<int>(layer.experts->count));
    layer.experts->width = pick(1, 30);
    layer.experts->shared_width = pick(0, 30);
  }
  return layer;
}

// Oracle: what must hold whatever the sizes: twice the tokens cost twice the projections and four times the scores; a window as long as the
// sequence is none, a shorter one never costs more; half the scores of a causal layer are half; a weight is used at least once where
// every expert is active: projections and experts are 2 s (weights), biases and norms aside.
TEST(ModelDesc, KeepsItsLawsOnRandomLayers) {
  std::mt19937 random(20261130);
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE(i);
    TransformerLayer layer = random_layer(random);
    const int64_t hidden = 1 + static_cast<int64_t>(random() % 50);
    const LayerFlops one = forward_flops(layer, hidden, 64, false);
    const LayerFlops two = forward_flops(layer, hidden, 128, false);
    EXPECT_EQ(two.projections, 2 * one.projections);
    EXPECT_EQ(two.experts, 2 * one.experts);
    EXPECT_EQ(two.scores, 4 * one.scores);
    EXPECT_EQ(forward_flops(layer, hidden, 64, true).scores, layer.attention.causal ? one.scores / 2 : one.scores);
    TransformerLayer windowed = layer;
    windowed.attention.window = 64;
    EXPECT_EQ(forward_flops(windowed, hidden, 64, true).scores, forward_flops(layer, hidden, 64, true).scores);
    windowed.attention.window = 63;
    EXPECT_LT(forward_flops(windowed, hidden, 64, true).scores, forward_flops(layer, hidden, 64, true).scores);

    ModelDesc model;
    model.hidden = hidden;
    model.head = false;
    model.layers = {{layer, 3, 0}};
    EXPECT_EQ(total_parameters(model), 3 * parameters_of(layer, hidden).total());
    EXPECT_LE(active_parameters(model), total_parameters(model));
    TransformerLayer bare = layer;
    bare.attention.qkv_bias = bare.attention.out_bias = bare.attention.qk_norm = false;
    bare.norms = 0;
    if (bare.feed_forward) bare.feed_forward->bias = false;
    if (bare.experts) bare.experts->active = bare.experts->count;
    const int64_t compression_norms = bare.attention.kv_rank > 0 ? bare.attention.kv_rank + bare.attention.q_rank : 0;
    const LayerFlops all = forward_flops(bare, hidden, 64, false);
    EXPECT_EQ(all.projections + all.experts,
              2.0 * 64 * static_cast<double>(parameters_of(bare, hidden).total() - compression_norms));
  }
}

// Oracle: by hand, for a grouped convolution, a linear layer and attention scores of one sample.
TEST(ModelDesc, CountsProductsOfOperators) {
  Operator convolution;
  convolution.kind = OperatorKind::kConvolution;
  convolution.in = 8;
  convolution.out = 16;
  convolution.kernel = 9;
  convolution.groups = 4;
  convolution.positions = 49;
  EXPECT_EQ(forward_flops(convolution), 2.0 * 49 * 16 * 2 * 9);
  Operator scores;
  scores.kind = OperatorKind::kBatchedMatmul;
  scores.in = 64;
  scores.out = 197;
  scores.groups = 12;
  scores.positions = 197;
  EXPECT_EQ(forward_flops(scores), 2.0 * 12 * 197 * 64 * 197);
  Operator norm;
  norm.kind = OperatorKind::kNorm;
  norm.in = norm.out = 16;
  EXPECT_EQ(forward_flops(norm), 0);
}

}  // namespace
}  // namespace trireme::plan
