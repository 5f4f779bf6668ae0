// Products, attention, element-wise work and collectives of a layer. Every formula is derived in docs/planner_costs.md, in the order of this file.
#include "plan/layer_time.h"

#include <algorithm>
#include <cmath>

namespace trireme::plan {

namespace {

// Counts that belong to training programs as such, not to a device: kernels of a layer and passes over its activations.
constexpr double kLaunchesForward = 45, kLaunchesBackward = 65, kLaunchesHead = 60, kLaunchesRouting = 60;
constexpr double kNormPasses = 12, kFusedNormPasses = 8, kCompiledPasses = 0.6;
constexpr double kLossPasses = 22, kFusedLossPasses = 10;
constexpr double kScorePassesForward = 6, kScorePassesBackward = 9;
constexpr double kFlashBackward = 2.5;  // five products against two
constexpr Bytes kCastBytes{
    3};  // 16 bits read, 8 bits written; the search for the largest value runs with what wrote them
constexpr double kWaveShare = 0.7;

}  // namespace

Seconds soft_max(Seconds a, Seconds b) {
  const Seconds high = std::max(a, b), low = std::min(a, b);
  if (high.value <= 0) return {};
  const double r2 = (low / high) * (low / high);
  return high * std::cbrt(std::sqrt(1 + r2 * r2 * r2));
}

Seconds matmul_seconds(const MachineNumbers& machine, FlopsPerSecond rate, double m, double n, double k) {
  struct Tile {
    double m, n, rate;
  };
  static constexpr Tile kTiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.93}, {128, 64, 0.80}, {64, 64, 0.60}};
  double best = 1e300;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(m / tile.m) * std::ceil(n / tile.n);
    const double waves = tiles / machine.processors;
    const double counted = kWaveShare * std::ceil(waves) + (1 - kWaveShare) * std::max(waves, 1.0);
    best = std::min(best, counted * (tile.m * tile.n) / tile.rate);
  }
  return Flops{2 * best * machine.processors * (k + machine.half_depth)} / rate;
}

Seconds gather_seconds(const MachineNumbers& machine, Bytes bytes, double ranks, double near, double beside) {
  if (ranks <= 1) return {};
  near = std::min(near, ranks);
  Seconds inside;
  if (near > 1) {
    inside = machine.link_latency * (0.5 + std::log2(near) / 4) + (near - 1) / near * bytes / machine.link;
    if (machine.group > 0 && near > machine.group) {
      const double groups = near / machine.group;
      inside += (groups - 1) / groups * bytes / machine.group_link;
    }
  }
  Seconds between;
  if (ranks > near) {
    const double hosts = ranks / near;
    between = kNetworkLatency * std::log2(hosts) + (hosts - 1) / hosts * bytes * beside / machine.network;
  }
  return std::max(inside, between);
}

Seconds allreduce_seconds(const MachineNumbers& machine, Bytes bytes, double ranks, double near, double beside) {
  return 2 * gather_seconds(machine, bytes, ranks, near, beside);
}

namespace {

struct Shape {
  const MachineNumbers& hw;
  const TrainingNumbers& training;
  double tokens, sequence, micro_batch, tp, cp, hidden;
  bool sequence_parallel;
};

/// Forward and backward of one product with weights; the gradient of frozen weights is not computed.
void add_product(LayerTime& time, const Shape& shape, double m, double n, double k) {
  if (m <= 0 || n <= 0 || k <= 0) return;
  const FlopsPerSecond rate = shape.hw.linear;
  time.matmul_forward += matmul_seconds(shape.hw, rate, m, n, k);
  time.matmul_backward += matmul_seconds(shape.hw, rate, m, k, n);
  if (!shape.training.frozen_base) {
    const Seconds weight = matmul_seconds(shape.hw, rate, k, n, m);
    time.matmul_weight += weight;
    time.matmul_backward += weight;
  }
  if (shape.training.low_precision) time.casts += kCastBytes * (m + n) * k / shape.hw.memory;
}

void add_attention(LayerTime& time, const LayerNumbers& layer, const Shape& s) {
  const MachineNumbers& hw = s.hw;
  const double seen = layer.window > 0 ? std::min(layer.window, s.sequence) : s.sequence;
  const bool half = layer.causal && (layer.window <= 0 || layer.window >= s.sequence);
  if (layer.kv_rank > 0) {
    // Latent attention: the projections down to the ranks stand on every tensor-parallel rank.
    const double q_in = layer.q_rank > 0 ? layer.q_rank : s.hidden;
    if (layer.q_rank > 0) add_product(time, s, s.tokens, layer.q_rank, s.hidden);
    add_product(time, s, s.tokens, layer.q_width / s.tp, q_in);
    add_product(time, s, s.tokens, layer.kv_rank + layer.rope_dim, s.hidden);
    add_product(time, s, s.tokens, layer.kv_width / s.tp, layer.kv_rank);
    time.launches_forward += 12;
    time.launches_backward += 16;
  } else {
    const double kv_split = std::min(s.tp, layer.kv_heads);
    add_product(time, s, s.tokens, layer.q_width / s.tp + layer.kv_width / kv_split, s.hidden);
  }
  add_product(time, s, s.tokens, s.hidden, layer.out_width / s.tp);
  if (hw.fused_attention) {
    const Flops flops{2 * s.tokens * seen * layer.score_width / s.tp * (half ? 0.5 : 1.0)};
    time.attention_forward += flops / hw.attention;
    time.attention_backward += kFlashBackward * flops / hw.attention;
  } else {
    const Flops flops{2 * s.tokens * s.sequence * layer.score_width / s.tp};
    const Bytes scores = s.tokens * s.sequence * layer.heads / s.tp * hw.element;
    time.attention_forward += flops / hw.batched + kScorePassesForward * scores / hw.memory;
    time.attention_backward += 2 * flops / hw.batched + kScorePassesBackward * scores / hw.memory;
  }
  if (s.cp > 1) {
    // Keys and values go once round the ring (or all four tensors through an all-to-all, about the same bytes).
    const Bytes kv = s.tokens * layer.kv_width / std::min(s.tp, layer.kv_heads) * hw.element;
    time.context += (s.cp - 1) * kv / hw.link + hw.link_latency;
  }
}

LayerTime layer_time(const LayerNumbers& layer, const Shape& s, const Plan& plan) {
  const MachineNumbers& hw = s.hw;
  LayerTime time;
  time.launches_forward = kLaunchesForward;
  time.launches_backward = kLaunchesBackward;
  add_attention(time, layer, s);
  if (layer.cross) add_attention(time, layer, s);
  double ffn_traffic = 0;  // elements per token and rank
  if (layer.ffn > 0) {
    add_product(time, s, s.tokens, (layer.gates - 1) * layer.ffn / s.tp, s.hidden);
    add_product(time, s, s.tokens, s.hidden, layer.ffn / s.tp);
    ffn_traffic += 2 * layer.gates * layer.ffn / s.tp;
  }
  if (layer.experts > 0) {
    const double ep = static_cast<double>(plan.ep);
    // Balanced routing: as many rows as this rank's own tokens make, spread over the experts that live here.
    const double rows = s.tokens / (s.sequence_parallel ? s.tp : 1) * layer.active;
    const double local = layer.experts / ep;
    const double m = std::max(1.0, rows / std::max(1.0, local));  // of one expert
    LayerTime one;
    add_product(one, s, m, (layer.expert_gates - 1) * layer.expert_width, s.hidden);
    add_product(one, s, m, s.hidden, layer.expert_width);
    // Grouped products fill the device together: waves are counted over all of them, so take the time of one with all rows, at the
    // padding of the single ones.
    LayerTime all;
    add_product(all, s, std::max(m, std::ceil(m / 128) * 128) * local, (layer.expert_gates - 1) * layer.expert_width,
                s.hidden);
    add_product(all, s, std::max(m, std::ceil(m / 128) * 128) * local, s.hidden, layer.expert_width);
    time.matmul_forward += std::min(one.matmul_forward * local, all.matmul_forward);
    time.matmul_backward += std::min(one.matmul_backward * local, all.matmul_backward);
    time.matmul_weight += std::min(one.matmul_weight * local, all.matmul_weight);
    // Each expert's rows and weights once; `all` has the rows of all and the weights of one.
    if (!hw.fused_experts) time.casts += one.casts * local;
    add_product(time, s, s.tokens, layer.experts, s.hidden);
    if (layer.shared_width > 0) {
      add_product(time, s, s.tokens, (layer.expert_gates - 1) * layer.shared_width / s.tp, s.hidden);
      add_product(time, s, s.tokens, s.hidden, layer.shared_width / s.tp);
      ffn_traffic += 2 * layer.expert_gates * layer.shared_width / s.tp;
    }
    const double share = rows / s.tokens;
    ffn_traffic += share * 6 * s.hidden;  // permute there and back
    if (!hw.fused_experts) ffn_traffic += share * 2 * layer.expert_gates * layer.expert_width;
    // Router, sorting and copies, and one product and one copy for each expert that lives here.
    time.launches_forward += kLaunchesRouting + 4 * local;
    time.launches_backward += 1.5 * kLaunchesRouting + 8 * local;
    if (ep > 1) {
      const Bytes bytes = rows * s.hidden * hw.element;
      const double near = std::min<double>(ep, hw.domain);
      const Seconds inside = (near - 1) / ep * bytes / hw.link;
      double rows_outside = rows * (ep - near) / ep;
      if (hw.sends_once_per_host && ep > near) {
        // A token crosses the network once for each other host that any of its experts is on (DeepEP).
        const double hosts = ep / near;
        rows_outside = rows / layer.active * (hosts - 1) * (1 - std::pow(1 - 1 / hosts, layer.active));
      }
      const Seconds outside = rows_outside * s.hidden * hw.element * hw.per_host / hw.network;
      const bool hidden = hw.hides_experts || (hw.hides_expert_network && ep > near);
      time.expert += 2 * (std::max(inside, outside) + hw.link_latency) * (hidden ? 1 - hw.overlap : 1.0);
    }
  }
  const double norm = hw.fused_norms ? kFusedNormPasses : kNormPasses;
  double passes = norm * s.hidden / (s.sequence_parallel ? s.tp : 1) + ffn_traffic;
  if (hw.compiled) passes *= kCompiledPasses;
  time.element_forward = passes * s.tokens * hw.element / hw.memory + time.casts;
  if (s.tp > 1) {
    const double near = std::min<double>(s.tp, hw.domain);
    const Bytes bytes = s.tokens * s.hidden * hw.element;
    const double collectives = layer.cross ? 3 : 2;
    time.tensor = collectives * allreduce_seconds(hw, bytes, s.tp, near, hw.per_host / near) *
                  (hw.hides_tp ? 1 - hw.overlap : 1.0);
    time.collectives = collectives;
  }
  return time;
}

}  // namespace

double vocab_rows(const ModelNumbers& model, double tp) {
  return model.vocab > 0 ? std::ceil(model.vocab / (128 * tp)) * 128 : 0;
}

MicroStepWork micro_step_work(const ModelNumbers& model, const MachineNumbers& hw, const TrainingNumbers& training,
                              const Plan& plan) {
  const auto tp = static_cast<double>(plan.tp), cp = static_cast<double>(plan.cp),
             b = static_cast<double>(plan.micro_batch);
  const double tokens = b * training.sequence / cp;
  const Shape shape{hw, training, tokens, training.sequence, b, tp, cp, model.hidden, plan.sequence_parallel};
  MicroStepWork work;
  for (int i = 0; i < model.num_kinds; ++i) work.layers[i] = layer_time(model.kinds[i], shape, plan);

  const double vocab = vocab_rows(model, tp);
  const double near = std::min<double>(tp, hw.domain);
  const Seconds reduced =
      tp > 1 ? allreduce_seconds(hw, tokens * model.hidden * hw.element, tp, near, hw.per_host / near) : Seconds{};
  if (model.head && vocab > 0) {
    const Seconds forward = matmul_seconds(hw, hw.plain, tokens, vocab, model.hidden);
    const Seconds weight = matmul_seconds(hw, hw.plain, model.hidden, vocab, tokens);
    Seconds head = forward + matmul_seconds(hw, hw.plain, tokens, model.hidden, vocab) + weight;
    const double passes = (hw.fused_loss ? kFusedLossPasses : kLossPasses) * (hw.compiled ? kCompiledPasses : 1.0);
    const Seconds loss = passes * tokens * vocab * hw.element / hw.memory;
    head += loss;
    if (tp > 1) head += reduced;
    const Seconds device = head;
    work.head = soft_max(device, kLaunchesHead * hw.launched_share * hw.launch);
    const double stretch = work.head / device;
    work.head_forward = (forward + loss / 2) * stretch;
    work.head_weight = training.frozen_base ? Seconds{} : weight * stretch;
  }
  work.embed = 4 * tokens * model.hidden * hw.element / hw.memory;
  if (tp > 1) work.embed += reduced;
  return work;
}

}  // namespace trireme::plan
