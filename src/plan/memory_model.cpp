// How many bytes one rank holds at its peak. Every formula is derived in docs/planner.md, in the order of this file.
#include <algorithm>
#include <cmath>

#include "plan/numbers.h"

namespace trireme::plan {

namespace {

// Bytes of a logit at the worst moment of the loss: 16-bit logits, their 32-bit copy, the softmax and its gradient; fused, logits and gradient.
constexpr Bytes kLogitBytes{14}, kFusedLogitBytes{4};
constexpr Bytes kGatheredBytes{2};  // of a weight that ZeRO-3 gathers
// Shares of a layer's activations that survive selective recomputation.
constexpr double kSelectiveKept = 0.5, kOperatorsKept = 0.25, kLayersKept = 0.5;

/// Elements that backward needs of one layer, per token and rank.
struct LayerActivations {
  double kept = 0;    ///< all of them
  Bytes scores;       ///< the unfused attention core
  double input = 0;   ///< the layer's input
  double widest = 0;  ///< on top while the layer's own backward runs: the gradients of its widest tensors
  double width = 0;   ///< of the widest product's output, for its weight gradient
};

LayerActivations layer_activations(const LayerNumbers& layer, const ModelNumbers& model, const MachineNumbers& hw,
                                   const Plan& plan, double sequence) {
  const double tp = static_cast<double>(plan.tp), spread = plan.sequence_parallel ? tp : 1;
  const double h = model.hidden;
  LayerActivations a;
  a.input = h / spread;
  a.kept = 4 * h / spread;  // inputs and outputs of both norms
  const double attention_blocks = layer.cross ? 2 : 1;
  double attention = layer.q_width + layer.out_width;
  if (layer.kv_rank > 0) {
    // Queries, keys and values of every head are kept beside the compressed ones they are made of.
    attention += layer.heads * (layer.key_dim + layer.value_dim);
    a.kept += (layer.q_rank > 0 ? 2 * layer.q_rank : 0) + 2 * layer.kv_rank + layer.rope_dim;
  } else {
    attention += layer.kv_width * std::max(1.0, tp / layer.kv_heads);
  }
  a.kept += attention_blocks * attention / tp;
  if (!hw.fused_attention)
    a.scores =
        Bytes{attention_blocks * 5 * layer.heads / tp * sequence};  // probabilities, their mask and the product with it
  if (!hw.fused_attention) a.kept += h / spread;                    // two dropout masks of a byte each
  double wide = 0;
  if (layer.ffn > 0) {
    a.kept += layer.gates * layer.ffn / tp;
    wide = layer.ffn / tp;
    a.width = (layer.gates - 1) * layer.ffn / tp;
  }
  if (layer.experts > 0) {
    const double rows = layer.active / spread;  // routed rows of one token, balanced
    a.kept += rows * (2 * h + layer.expert_gates * layer.expert_width) + layer.expert_gates * layer.shared_width / tp;
    wide = std::max(wide, rows * layer.expert_width);
    a.width = std::max(a.width, (layer.expert_gates - 1) * layer.expert_width);
  }
  a.widest = 2 * wide;
  return a;
}

/// What PyTorch's caching allocator takes from the device for a tensor: multiples of 512 B; from 1 MiB on places in segments of 20 MiB, from
/// 10 MiB on segments of its own, in multiples of 2 MiB (c10/core/CachingDeviceAllocator.h).
Bytes handed_out(Bytes asked) {
  constexpr double kBlock = 512, kSmall = 1 << 20, kLarge = 10 << 20, kSegment = 20 << 20, kMultiple = 2 << 20;
  const double block = std::ceil(asked.value / kBlock) * kBlock;
  if (block < kSmall) return Bytes{block};
  if (block < kLarge) return Bytes{kSegment / std::floor(kSegment / block)};
  return Bytes{std::ceil(block / kMultiple) * kMultiple};
}

/// As many layers of each kind.
bool same_layers(const ModelNumbers& model, StageRange a, StageRange b) {
  for (int i = 0; i < model.num_kinds; ++i) {
    if (model.layers_before[a.last][i] - model.layers_before[a.first][i] !=
        model.layers_before[b.last][i] - model.layers_before[b.first][i]) {
      return false;
    }
  }
  return true;
}

double layer_weights(const LayerNumbers& layer, const Plan& plan) {
  return layer.split / static_cast<double>(plan.tp) + layer.replicated +
         layer.expert_weights / static_cast<double>(plan.ep);
}

}  // namespace

MemoryParts stage_memory(const ModelNumbers& model, const MachineNumbers& hw, const TrainingNumbers& training,
                         const Plan& plan, int rank) {
  if (!model.operators.empty()) return operator_memory(model, hw, training, plan);
  return stage_memory(model, hw, training, plan, rank, stage_layers(model, plan, rank));
}

MemoryParts stage_memory(const ModelNumbers& model, const MachineNumbers& hw, const TrainingNumbers& training,
                         const Plan& plan, int rank, StageRange range) {
  const auto tp = static_cast<double>(plan.tp), dp = static_cast<double>(plan.dp), cp = static_cast<double>(plan.cp),
             ep = static_cast<double>(plan.ep);
  const int ranks = static_cast<int>(plan.pp);
  const bool zbv = plan.schedule == "zbv";  // its first and last stage stand on the first rank
  const bool first = rank == 0, last = zbv ? first : rank + 1 == ranks;
  const double micro_steps = training.global_batch / (static_cast<double>(plan.micro_batch) * dp);
  const double tokens = static_cast<double>(plan.micro_batch) * training.sequence / cp;
  const double vocab = model.vocab > 0 ? std::ceil(model.vocab / (128 * tp)) * 128 : 0;
  const double shards = plan.shard_ranks > 0 ? static_cast<double>(plan.shard_ranks) : dp * cp;

  // Parameters. Experts have fewer replicas than the rest.
  double dense = 0, experts = 0, widest_layer = 0;
  for (int i = 0; i < model.num_kinds; ++i) {
    const double n = model.layers_before[range.last][i] - model.layers_before[range.first][i];
    if (n <= 0) continue;
    dense += n * (model.kinds[i].split / tp + model.kinds[i].replicated);
    experts += n * model.kinds[i].expert_weights / ep;
    widest_layer = std::max(widest_layer, layer_weights(model.kinds[i], plan));
  }
  if (first) dense += vocab * model.hidden + model.positions * model.hidden + model.first_parameters;
  if (last && model.head && !(model.tied && first)) dense += vocab * model.hidden;
  if (last) dense += model.last_parameters;

  MemoryParts m;
  const double replicas = dp * cp, expert_replicas = std::max(1.0, dp * cp * tp / ep);
  const double trained = training.frozen_base ? 0.0 : 1.0;
  const double weight_split = plan.zero_stage >= 3 ? shards : 1, gradient_split = plan.zero_stage >= 2 ? shards : 1,
               optimizer_split = plan.zero_stage >= 1 ? (plan.zero_stage >= 3 ? shards : replicas) : 1;
  const double expert_split = plan.zero_stage >= 1 ? expert_replicas : 1;
  m.weights = training.weight_bytes * (dense / weight_split + experts / (plan.zero_stage >= 3 ? expert_replicas : 1));
  m.gradients = trained * (training.gradient_bytes *
                               (dense / gradient_split + experts / (plan.zero_stage >= 2 ? expert_replicas : 1)) +
                           training.accumulation_bytes * (dense + experts));
  m.optimizer = plan.offload_optimizer
                    ? Bytes{}
                    : trained * training.optimizer_bytes * (dense / optimizer_split + experts / expert_split);
  // What compression left out of one step is added to the next one's gradients.
  if (plan.compression < 1) m.gradients += trained * training.gradient_bytes * (dense + experts);
  if (plan.zero_stage == 3) {
    // Two layers gathered at a time and the unsplit gradient of one, or parts of them.
    m.gathered = hw.gathered_layers * widest_layer * (kGatheredBytes + training.gradient_bytes / 2);
  }
  // One bucket is filled while another one is reduced.
  m.gathered += 2 * std::min(Bytes{static_cast<double>(plan.bucket_bytes)},
                             trained * training.gradient_bytes * (dense + experts));

  // Activations.
  const double in_flight = std::min<double>(ranks - rank, micro_steps);
  Bytes kept_micro_step, working, widest;
  for (int i = 0; i < model.num_kinds; ++i) {
    const double n = model.layers_before[range.last][i] - model.layers_before[range.first][i];
    if (n <= 0) continue;
    const LayerActivations a = layer_activations(model.kinds[i], model, hw, plan, training.sequence);
    const Bytes all = tokens * (a.kept * hw.element + a.scores);
    const Bytes input = tokens * a.input * hw.element;
    Bytes kept = all, again;  // what stays until backward, and what recomputation brings back for one layer
    switch (plan.recompute) {
      case Recompute::kNone:
        break;
      case Recompute::kSelective:
        if (hw.selective_is_attention) {
          kept = tokens * a.kept * hw.element;
          again = tokens * a.scores;
        } else {
          kept = kSelectiveKept * all;
          again = all;
        }
        break;
      case Recompute::kSelectiveOperators:
        kept = kOperatorsKept * all, again = all;
        break;
      case Recompute::kSelectiveLayers:
        kept = kLayersKept * all + (1 - kLayersKept) * input, again = all;
        break;
      case Recompute::kFull:
        kept = input, again = all;
        break;
    }
    if (plan.offload_activations) {
      // Two layers' worth is on its way.
      working = std::max(working, 2 * all);
      kept_micro_step += n * (1 - plan.recompute_share) * all;
      continue;
    }
    kept_micro_step += n * (plan.recompute_share * kept + (1 - plan.recompute_share) * all);
    working = std::max(working, again);
    widest =
        std::max(widest, tokens * a.widest * hw.element + trained * training.gradient_bytes * model.hidden * a.width);
  }
  double chunks = in_flight;
  if (plan.schedule.starts_with("zb")) {
    // arXiv:2401.10241: activations stay until the gradients of the weights are computed.
    chunks = std::min<double>(plan.schedule == "zb2p" ? 2 * ranks - 1 : ranks, micro_steps);
  } else if (plan.virtual_stages > 1) {
    // Interleaved 1F1B (arXiv:2104.04473): a rank holds some chunks more than it would without.
    const double v = static_cast<double>(plan.virtual_stages);
    chunks = std::min(micro_steps, (2.0 * (ranks - rank - 1) + (v - 1) * ranks + 1) / v);
  }
  m.activations = chunks * kept_micro_step;
  // Activations come in tensors of about this size.
  const Bytes tensor = tokens * model.hidden / (plan.sequence_parallel ? tp : 1) * hw.element;
  if (tensor.value > 0) m.rounding = m.activations * (handed_out(tensor) / tensor - 1);

  // On top: the head's backward on the last stage, or the widest layer's.
  Bytes head;
  if (last && model.head && vocab > 0) {
    const Bytes logit = hw.fused_loss ? kFusedLogitBytes : kLogitBytes;
    head = logit * tokens * vocab + trained * training.gradient_bytes * vocab * model.hidden;
    if (plan.zero_stage == 3) head += kGatheredBytes * vocab * model.hidden;
  }
  m.temporaries = std::max(head, working + widest);
  m.context = hw.context;
  return m;
}

Bytes layer_activation_bytes(const LayerNumbers& layer, const ModelNumbers& model, const MachineNumbers& machine,
                             const TrainingNumbers& training, const Plan& plan) {
  const LayerActivations a = layer_activations(layer, model, machine, plan, training.sequence);
  const double tokens = static_cast<double>(plan.micro_batch) * training.sequence / static_cast<double>(plan.cp);
  return tokens * (a.kept * machine.element + a.scores);
}

PeakMemory peak_memory(const ModelNumbers& model, const MachineNumbers& machine, const TrainingNumbers& training,
                       const Plan& plan) {
  PeakMemory peak;
  Bytes most{-1};
  const int ranks = static_cast<int>(plan.pp);
  StageRange before;
  // Equal stages of equal layers: the first, the one behind it and the last tell all.
  const bool equal = model.num_kinds == 1 && plan.stage_layers.empty() && static_cast<int>(model.layers) % ranks == 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (equal && rank == 2 && ranks > 3) rank = ranks - 1;
    // A rank with the layers of the one before it has no more micro-steps in flight than that.
    const StageRange range = model.operators.empty() ? stage_layers(model, plan, rank) : StageRange{};
    const bool same = rank > 1 && rank + 1 < ranks && same_layers(model, before, range);
    before = range;
    if (same) continue;
    const MemoryParts parts = model.operators.empty() ? stage_memory(model, machine, training, plan, rank, range)
                                                      : operator_memory(model, machine, training, plan);
    if (parts.total() > most) {
      most = parts.total();
      peak = {parts, rank};
    }
  }
  return peak;
}

}  // namespace trireme::plan
