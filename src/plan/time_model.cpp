// How long one optimizer step takes. Every formula is derived in docs/planner.md, in the order of this file.
#include <algorithm>
#include <cmath>

#include "plan/numbers.h"

namespace trireme::plan {

namespace {

// Counts that belong to training programs as such, not to a device: kernels of a layer and passes over its activations.
constexpr double kLaunchesForward = 45, kLaunchesBackward = 65, kLaunchesHead = 60, kLaunchesRouting = 60;
constexpr double kNormPasses = 12, kFusedNormPasses = 8, kCompiledPasses = 0.6, kCompiledLaunches = 0.5;
constexpr double kLossPasses = 22, kFusedLossPasses = 10;
constexpr double kScorePassesForward = 6, kScorePassesBackward = 9;
constexpr double kFlashBackward = 2.5;  // five products against two
constexpr double kOptimizerBytes = 30, kOptimizerSeconds = 5e-3, kMicroStepSeconds = 1e-4;
constexpr double kNetworkLatency = 4e-5, kMessageLatency = 1e-4;
constexpr double kCastBytes =
    3;  // 16 bits read, 8 bits written; the search for the largest value runs with what wrote them
constexpr double kWaveShare = 0.7;
constexpr double kSendExposed = 0.15, kSendExposedInterleaved = 0.05;
constexpr double kSelectiveOperators = 0.35, kSelectiveLayers = 0.5;

double soft_max(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  if (high <= 0) return 0;
  const double r2 = (low / high) * (low / high);
  return high * std::cbrt(std::sqrt(1 + r2 * r2 * r2));
}

}  // namespace

double matmul_seconds(const MachineNumbers& machine, double rate, double m, double n, double k) {
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
  return 2 * best * machine.processors * (k + machine.half_depth) / rate;
}

double gather_seconds(const MachineNumbers& machine, double bytes, double ranks, double near, double beside) {
  if (ranks <= 1) return 0;
  near = std::min(near, ranks);
  double inside = 0;
  if (near > 1) {
    inside = machine.link_latency * (0.5 + std::log2(near) / 4) + (near - 1) / near * bytes / machine.link;
    if (machine.group > 0 && near > machine.group) {
      const double groups = near / machine.group;
      inside += (groups - 1) / groups * bytes / machine.group_link;
    }
  }
  double between = 0;
  if (ranks > near) {
    const double hosts = ranks / near;
    between = kNetworkLatency * std::log2(hosts) + (hosts - 1) / hosts * bytes * beside / machine.network;
  }
  return std::max(inside, between);
}

double allreduce_seconds(const MachineNumbers& machine, double bytes, double ranks, double near, double beside) {
  return 2 * gather_seconds(machine, bytes, ranks, near, beside);
}

StageRange stage_layers(int layers, int ranks, int rank) {
  if (layers % ranks == 0) return {layers / ranks * rank, layers / ranks * (rank + 1)};
  const int places = (layers + 2 + ranks - 1) / ranks;
  const auto begin = [&](int r) { return r == 0 ? 0 : std::clamp(places * r - 1, 0, layers); };
  return {begin(rank), rank + 1 == ranks ? layers : begin(rank + 1)};
}

namespace {

/// The forward of one layer on one rank, by cause; backward where it is no multiple of it.
struct LayerTime {
  double matmul_forward = 0, matmul_backward = 0;
  double attention_forward = 0, attention_backward = 0;
  double element_forward = 0;
  double casts = 0;   ///< of both operands of the forward products to low precision
  double tensor = 0;  ///< collectives of one pass over tensor-parallel ranks
  double expert = 0;  ///< all-to-all of one pass
  double context = 0;
  double launches_forward = kLaunchesForward, launches_backward = kLaunchesBackward;
  double collectives = 0;
};

struct Shape {
  const MachineNumbers& hw;
  const TrainingNumbers& training;
  double tokens, sequence, micro_batch, tp, cp, hidden;
  bool sequence_parallel;
};

/// Forward and backward of one product with weights; the gradient of frozen weights is not computed.
void add_product(LayerTime& time, const Shape& shape, double m, double n, double k) {
  if (m <= 0 || n <= 0 || k <= 0) return;
  const double rate = shape.hw.linear;
  time.matmul_forward += matmul_seconds(shape.hw, rate, m, n, k);
  time.matmul_backward += matmul_seconds(shape.hw, rate, m, k, n);
  if (!shape.training.frozen_base) time.matmul_backward += matmul_seconds(shape.hw, rate, k, n, m);
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
    const double flops = 2 * s.tokens * seen * layer.score_width / s.tp * (half ? 0.5 : 1.0);
    time.attention_forward += flops / hw.attention;
    time.attention_backward += kFlashBackward * flops / hw.attention;
  } else {
    const double flops = 2 * s.tokens * s.sequence * layer.score_width / s.tp;
    const double scores = s.tokens * s.sequence * layer.heads / s.tp * hw.element;
    time.attention_forward += flops / hw.batched + kScorePassesForward * scores / hw.memory;
    time.attention_backward += 2 * flops / hw.batched + kScorePassesBackward * scores / hw.memory;
  }
  if (s.cp > 1) {
    // Keys and values go once round the ring (or all four tensors through an all-to-all, about the same bytes).
    const double kv = s.tokens * layer.kv_width / std::min(s.tp, layer.kv_heads) * hw.element;
    time.context += (s.cp - 1) * kv / hw.link + hw.link_latency;
  }
}

LayerTime layer_time(const LayerNumbers& layer, const Shape& s, const Plan& plan) {
  const MachineNumbers& hw = s.hw;
  LayerTime time;
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
    const double etp = 1;
    // Balanced routing: as many rows as this rank's own tokens make, spread over the experts that live here.
    const double rows = s.tokens / (s.sequence_parallel ? s.tp : 1) * layer.active;
    const double local = layer.experts / ep;
    const double per_expert = rows / std::max(1.0, local) * 1.0;
    const double m = std::max(1.0, per_expert);
    (void)etp;
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
    add_product(time, s, s.tokens, layer.experts, s.hidden);
    if (layer.shared_width > 0) {
      add_product(time, s, s.tokens, (layer.expert_gates - 1) * layer.shared_width / s.tp, s.hidden);
      add_product(time, s, s.tokens, s.hidden, layer.shared_width / s.tp);
      ffn_traffic += 2 * layer.expert_gates * layer.shared_width / s.tp;
    }
    const double share = rows / s.tokens;
    ffn_traffic += share * (2 * layer.expert_gates * layer.expert_width + 6 * s.hidden);  // permute there and back
    // Router, sorting and copies, and one product and one copy for each expert that lives here.
    time.launches_forward += kLaunchesRouting + 4 * local;
    time.launches_backward += 1.5 * kLaunchesRouting + 8 * local;
    if (ep > 1) {
      const double bytes = rows * s.hidden * hw.element;
      const double near = std::min<double>(ep, hw.domain);
      const double inside = (near - 1) / ep * bytes / hw.link;
      double rows_outside = rows * (ep - near) / ep;
      if (hw.sends_once_per_host && ep > near) {
        // A token crosses the network once for each other host that any of its experts is on (DeepEP).
        const double hosts = ep / near;
        rows_outside = rows / layer.active * (hosts - 1) * (1 - std::pow(1 - 1 / hosts, layer.active));
      }
      const double outside = rows_outside * s.hidden * hw.element * hw.per_host / hw.network;
      time.expert += 2 * (std::max(inside, outside) + hw.link_latency) * (hw.hides_experts ? 1 - hw.overlap : 1.0);
    }
  }
  const double norm = hw.fused_norms ? kFusedNormPasses : kNormPasses;
  double passes = norm * s.hidden / (s.sequence_parallel ? s.tp : 1) + ffn_traffic;
  if (hw.compiled) passes *= kCompiledPasses;
  time.element_forward = passes * s.tokens * hw.element / hw.memory + time.casts;
  if (s.tp > 1) {
    const double near = std::min<double>(s.tp, hw.domain);
    const double bytes = s.tokens * s.hidden * hw.element;
    const double collectives = layer.cross ? 3 : 2;
    time.tensor = collectives * allreduce_seconds(hw, bytes, s.tp, near, hw.per_host / near) *
                  (hw.hides_tp ? 1 - hw.overlap : 1.0);
    time.collectives = collectives;
  }
  return time;
}

}  // namespace

TimeParts step_time(const ModelNumbers& model, const MachineNumbers& hw, const TrainingNumbers& training,
                    const Plan& plan, PipelineDetail* detail) {
  if (!model.operators.empty()) return operator_step_time(model, hw, training, plan);
  const auto dp = static_cast<double>(plan.dp), tp = static_cast<double>(plan.tp), pp = static_cast<double>(plan.pp),
             cp = static_cast<double>(plan.cp), b = static_cast<double>(plan.micro_batch);
  const double micro_steps = training.global_batch / (b * dp);
  const double tokens = b * training.sequence / cp;
  const Shape shape{hw, training, tokens, training.sequence, b, tp, cp, model.hidden, plan.sequence_parallel};
  const bool interleaved = plan.virtual_stages > 1;
  const bool sharded = plan.zero_stage == 3;
  const double near_dp =
      std::max(1.0, std::min(dp * cp, std::floor(hw.domain / tp)));  // data-parallel ranks of one link domain
  const double beside_dp = std::max(1.0, std::floor(hw.per_host / std::min<double>(near_dp, hw.per_host)));

  // One layer of each kind, all passes of one micro-step.
  struct KindTime {
    TimeParts parts;
    double seconds = 0, gather = 0;
  };
  std::array<KindTime, ModelNumbers::kMaxKinds> kinds;
  for (int i = 0; i < model.num_kinds; ++i) {
    const LayerNumbers& layer = model.kinds[i];
    const LayerTime time = layer_time(layer, shape, plan);
    double again = 0, again_attention = 0, again_collectives = 0;
    switch (plan.recompute) {
      case Recompute::kNone:
        break;
      case Recompute::kSelective:
        if (hw.selective_is_attention)
          again_attention = hw.fused_attention ? 0 : 1;
        else
          again = kSelectiveOperators;
        break;
      case Recompute::kSelectiveOperators:
        again = kSelectiveOperators;
        break;
      case Recompute::kSelectiveLayers:
        again = again_collectives = kSelectiveLayers;
        break;
      case Recompute::kFull:
        again = again_collectives = 1;
        break;
    }
    again *= plan.recompute_share, again_attention *= plan.recompute_share, again_collectives *= plan.recompute_share;
    KindTime& kind = kinds[i];
    TimeParts& p = kind.parts;
    p.matmul = time.matmul_forward + time.matmul_backward;
    p.attention = time.attention_forward + time.attention_backward;
    p.elementwise = 3 * time.element_forward;
    p.recompute = again * (time.matmul_forward + time.element_forward + time.attention_forward) +
                  again_attention * time.attention_forward +
                  again_collectives * (time.tensor + time.expert + time.context);
    p.tensor_parallel = 2 * time.tensor;
    p.expert_parallel = 2 * time.expert;
    p.context_parallel = 3 * time.context;
    const double launches =
        (time.launches_forward * (1 + again) + time.launches_backward) * (hw.compiled ? kCompiledLaunches : 1.0) +
        time.collectives * (2 + again_collectives);
    const double device = p.total();
    kind.seconds = soft_max(device, launches * hw.launch);
    p.launch = kind.seconds - device;
    if (plan.offload_activations && hw.host_link > 0) {
      // Out behind forward, back behind backward: only what takes longer than computing shows.
      const double transfer =
          2 * plan.recompute_share * layer_activation_bytes(layer, model, hw, training, plan) / hw.host_link;
      kind.gather = std::max(0.0, transfer - kind.seconds);
    }
    if (sharded) {
      const double weights = layer.split / tp + layer.replicated + layer.expert_weights / static_cast<double>(plan.ep);
      const double ranks = plan.shard_ranks > 0 ? static_cast<double>(plan.shard_ranks) : dp * cp;
      const double near = std::min(near_dp, ranks);
      MachineNumbers gathering = hw;
      gathering.network *= hw.gather_share;
      const double gathered = gather_seconds(gathering, weights * training.gather_bytes, ranks, near, beside_dp);
      const double reduced = gather_seconds(gathering, weights * training.gradient_bytes, ranks, near, beside_dp);
      const double comm = 2 * gathered + reduced;
      // The longer of the two, and the part of the shorter that does not hide behind it.
      kind.gather =
          std::max(kind.seconds, comm) + (1 - hw.overlap) * std::min(kind.seconds, comm) - kind.seconds + kind.gather;
    }
  }

  // Head and loss, and the embedding.
  double head = 0;
  const double vocab = model.vocab > 0 ? std::ceil(model.vocab / (128 * tp)) * 128 : 0;  // per rank
  if (model.head && vocab > 0) {
    head = matmul_seconds(hw, hw.plain, tokens, vocab, model.hidden) +
           matmul_seconds(hw, hw.plain, tokens, model.hidden, vocab) +
           matmul_seconds(hw, hw.plain, model.hidden, vocab, tokens);
    const double passes = (hw.fused_loss ? kFusedLossPasses : kLossPasses) * (hw.compiled ? kCompiledPasses : 1.0);
    head += passes * tokens * vocab * hw.element / hw.memory;
    if (tp > 1) {
      const double near = std::min<double>(tp, hw.domain);
      head += allreduce_seconds(hw, tokens * model.hidden * hw.element, tp, near, hw.per_host / near);
    }
    head = soft_max(head, kLaunchesHead * hw.launch * (hw.compiled ? kCompiledLaunches : 1.0));
  }
  double embed = 4 * tokens * model.hidden * hw.element / hw.memory;
  if (tp > 1) {
    const double near = std::min<double>(tp, hw.domain);
    embed += allreduce_seconds(hw, tokens * model.hidden * hw.element, tp, near, hw.per_host / near);
  }

  // Stages. All but the first and the last of a uniform model are alike, but counting them one by one is cheap.
  const int ranks = static_cast<int>(pp);
  double slowest = 0, sum = 0, most_parameters = 0;
  int slowest_rank = 0;
  for (int r = 0; r < ranks; ++r) {
    const StageRange range = stage_layers(static_cast<int>(model.layers), ranks, r);
    double seconds = kMicroStepSeconds, parameters = 0;
    for (int i = 0; i < model.num_kinds; ++i) {
      const double n = model.layers_before[range.last][i] - model.layers_before[range.first][i];
      seconds += n * (kinds[i].seconds + kinds[i].gather);
      parameters += n * (model.kinds[i].split / tp + model.kinds[i].replicated +
                         model.kinds[i].expert_weights / static_cast<double>(plan.ep));
    }
    if (r == 0) {
      seconds += embed;
      parameters += vocab * model.hidden;
    }
    if (r + 1 == ranks) {
      seconds += head;
      if (!(model.tied && ranks == 1)) parameters += vocab * model.hidden;
    }
    sum += seconds;
    if (detail != nullptr) detail->stage_seconds.push_back(seconds);
    most_parameters = std::max(most_parameters, parameters);
    if (seconds > slowest) {
      slowest = seconds;
      slowest_rank = r;
    }
  }

  TimeParts step;
  {
    const StageRange range = stage_layers(static_cast<int>(model.layers), ranks, slowest_rank);
    for (int i = 0; i < model.num_kinds; ++i) {
      const double n = micro_steps * (model.layers_before[range.last][i] - model.layers_before[range.first][i]);
      const TimeParts& p = kinds[i].parts;
      step.matmul += n * p.matmul;
      step.attention += n * p.attention;
      step.elementwise += n * p.elementwise;
      step.recompute += n * p.recompute;
      step.tensor_parallel += n * p.tensor_parallel;
      step.expert_parallel += n * p.expert_parallel;
      step.context_parallel += n * p.context_parallel;
      step.launch += n * p.launch;
      step.gather += n * kinds[i].gather;
    }
    step.head = micro_steps * ((slowest_rank == 0 ? embed : 0) + (slowest_rank + 1 == ranks ? head : 0));
    step.fixed = micro_steps * kMicroStepSeconds;
  }

  // Pipeline.
  if (ranks > 1) {
    step.bubble = (sum - slowest) / static_cast<double>(plan.virtual_stages);
    // One boundary that leaves the link domain is enough: the slowest sets the pace.
    const bool across = tp * dp * cp * pp > hw.domain;
    double message = tokens * model.hidden * hw.element;
    if (hw.splits_messages || plan.sequence_parallel) message /= tp;
    const double rate = across ? hw.network / std::min<double>(hw.per_host, tp * dp * cp) : hw.link;
    const double send = 2 * (kMessageLatency + message / rate);
    if (detail != nullptr) {
      detail->message_bytes = message;
      detail->message_latency = kMessageLatency;
      detail->message_rate = rate;
    }
    step.pipeline =
        (pp - 1) * send +
        micro_steps * send *
            (interleaved ? kSendExposedInterleaved * static_cast<double>(plan.virtual_stages) : kSendExposed);
    if (model.tied) {
      const double bytes = vocab * model.hidden * training.gradient_bytes;
      step.gradients += across ? 2 * kNetworkLatency + bytes / rate : bytes / hw.link;
    }
  }

  // Gradients of data-parallel replicas.
  const double replicas = dp * cp;
  if (replicas > 1 && !sharded && !training.frozen_base) {
    const double gradients = most_parameters * training.gradient_bytes,
                 weights = most_parameters * training.weight_bytes;
    double comm = 0;
    if (plan.zero_stage > 0) {
      comm = gather_seconds(hw, gradients, replicas, near_dp, beside_dp) +
             gather_seconds(hw, weights, replicas, near_dp, beside_dp);
    } else {
      comm = allreduce_seconds(hw, gradients, replicas, near_dp, beside_dp);
    }
    if (hw.hides_gradients) comm -= std::min(comm * hw.overlap, slowest * 2 / 3);
    step.gradients += comm;
  } else if (sharded && plan.shard_ranks > 0 && static_cast<double>(plan.shard_ranks) < replicas) {
    const double shard = most_parameters / static_cast<double>(plan.shard_ranks) * training.gradient_bytes;
    double comm = allreduce_seconds(hw, shard, replicas / static_cast<double>(plan.shard_ranks), 1, hw.per_host);
    if (hw.hides_gradients) comm *= 1 - hw.overlap;
    step.gradients += comm;
  }

  // Optimizer.
  if (!training.frozen_base) {
    double parameters = most_parameters;
    if (plan.zero_stage > 0) parameters /= plan.shard_ranks > 0 ? static_cast<double>(plan.shard_ranks) : replicas;
    step.optimizer = kOptimizerBytes * parameters / hw.memory + kOptimizerSeconds;
  }
  return step;
}

}  // namespace trireme::plan
