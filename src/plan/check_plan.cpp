#include <cmath>

#include "base/str.h"
#include "plan/numbers.h"

namespace trireme::plan {

namespace {
bool divides(double part, double whole) { return part >= 1 && std::fmod(whole, part) == 0; }

/// Whether the closed forms of a zero-bubble schedule hold. Recomputed activations would stay until the gradients of the weights: what the
/// attention core keeps has no weights and may be recomputed.
bool zero_bubble_runs(const Plan& plan, double micro_steps) {
  if (plan.pp < 2 || (plan.recompute != Recompute::kNone && plan.recompute != Recompute::kSelective)) return false;
  const int64_t least = plan.schedule == "zb1p" ? plan.pp : 2 * plan.pp - 1;
  return micro_steps >= static_cast<double>(least) && plan.virtual_stages == (plan.schedule == "zbv" ? 2 : 1);
}
}  // namespace

PlanFault check_plan(const ModelNumbers& model, const TrainingNumbers& training, const Plan& plan) {
  const auto dp = static_cast<double>(plan.dp), tp = static_cast<double>(plan.tp), pp = static_cast<double>(plan.pp),
             cp = static_cast<double>(plan.cp), ep = static_cast<double>(plan.ep),
             v = static_cast<double>(plan.virtual_stages), b = static_cast<double>(plan.micro_batch);
  if (dp < 1 || tp < 1 || pp < 1 || cp < 1 || ep < 1 || v < 1 || b < 1) return PlanFault::kDegree;
  if (training.global_batch < 1 || !divides(b * dp, training.global_batch)) return PlanFault::kBatch;
  if (!model.operators.empty()) {
    return tp * pp * cp * ep * v == 1 && plan.recompute == Recompute::kNone ? PlanFault::kNone : PlanFault::kOperators;
  }
  if (!divides(cp, training.sequence) || (plan.sequence_parallel && !divides(tp * cp, training.sequence)))
    return PlanFault::kSequence;
  if (model.positions > 0 && training.sequence > model.positions) return PlanFault::kPosition;
  bool experts = false;
  for (int i = 0; i < model.num_kinds; ++i) {
    const LayerNumbers& layer = model.kinds[i];
    if (!divides(tp, layer.heads)) return PlanFault::kHeads;
    if (layer.ffn > 0 && !divides(tp, layer.ffn)) return PlanFault::kWidth;
    if (layer.experts > 0) {
      experts = true;
      if (!divides(ep, layer.experts) || !divides(ep, dp * cp * tp)) return PlanFault::kExperts;
    }
  }
  if (ep > 1 && !experts) return PlanFault::kExperts;
  if (model.layers < pp * v) return PlanFault::kLayers;
  const double micro_steps = training.global_batch / (b * dp);
  if (plan.schedule.starts_with("zb")) {
    if (!zero_bubble_runs(plan, micro_steps)) return PlanFault::kSchedule;
  } else if (v > 1 && (pp < 2 || std::fmod(micro_steps, pp) != 0)) {
    return PlanFault::kInterleaving;
  }
  if (!plan.stage_layers.empty()) {
    double layers = 0;
    bool one_each = true;
    for (const int n : plan.stage_layers) {
      layers += n;
      one_each = one_each && n >= 1;
    }
    if (static_cast<double>(plan.stage_layers.size()) != pp || layers != model.layers || !one_each || v > 1)
      return PlanFault::kStages;
  }
  if (plan.shard_ranks > 0 && !divides(static_cast<double>(plan.shard_ranks), dp * cp)) return PlanFault::kShards;
  return PlanFault::kNone;
}

std::string text_of(PlanFault fault, const ModelNumbers& model, const TrainingNumbers& training, const Plan& plan) {
  const LayerNumbers& layer = model.kinds[0];
  switch (fault) {
    case PlanFault::kNone:
      return "";
    case PlanFault::kDegree:
      return str("degrees dp ", plan.dp, ", tp ", plan.tp, ", pp ", plan.pp, ", cp ", plan.cp, ", ep ", plan.ep,
                 ", virtual stages ", plan.virtual_stages, ", micro-batch ", plan.micro_batch,
                 ": each must be at least 1");
    case PlanFault::kBatch:
      return str("global batch ", training.global_batch, " is no multiple of micro-batch ", plan.micro_batch, " x dp ",
                 plan.dp);
    case PlanFault::kHeads:
      return str(layer.heads, " heads are no multiple of tp ", plan.tp);
    case PlanFault::kWidth:
      return str("feed-forward width ", layer.ffn, " is no multiple of tp ", plan.tp);
    case PlanFault::kLayers:
      return str(model.layers, " layers are fewer than pp ", plan.pp, " x ", plan.virtual_stages, " virtual stages");
    case PlanFault::kInterleaving:
      return plan.pp < 2 ? str(plan.virtual_stages, " virtual stages need a pipeline, and pp is 1")
                         : str("interleaving needs micro-steps that are a multiple of pp ", plan.pp, "; there are ",
                               training.global_batch / static_cast<double>(plan.micro_batch * plan.dp));
    case PlanFault::kSequence:
      return str("sequence length ", training.sequence, " is no multiple of cp ", plan.cp,
                 plan.sequence_parallel ? str(" x tp ", plan.tp) : "");
    case PlanFault::kExperts:
      return str("ep ", plan.ep, " must divide both the ",
                 layer.experts > 0 ? layer.experts : model.kinds[std::max(0, model.num_kinds - 1)].experts,
                 " experts of a layer and dp x cp x tp = ", plan.dp * plan.cp * plan.tp);
    case PlanFault::kShards:
      return str("dp x cp = ", plan.dp * plan.cp, " is no multiple of ", plan.shard_ranks,
                 " ranks that share one copy");
    case PlanFault::kOperators:
      return "a network that is described operator by operator is split by data only, without recomputation";
    case PlanFault::kSchedule:
      return str("schedule ", plan.schedule, " needs pp of at least 2, ",
                 plan.schedule == "zbv" ? "two virtual stages" : "no virtual stages", ", at least ",
                 plan.schedule == "zb1p" ? plan.pp : 2 * plan.pp - 1, " micro-steps (there are ",
                 training.global_batch / static_cast<double>(plan.micro_batch * plan.dp),
                 ") and no recomputation but that of attention");
    case PlanFault::kStages:
      return str("the layers given by stage are no split of ", model.layers, " layers over pp ", plan.pp,
                 " without virtual stages");
    case PlanFault::kOffload:
      return "optimizer state cannot be kept in the host's memory: the device's link to its host is not known";
    case PlanFault::kPosition:
      return str("sequence length ", training.sequence, " is longer than the model's ", model.positions, " positions");
  }
  return "";
}

}  // namespace trireme::plan
