#include "trireme/plan/model_desc.h"

#include <algorithm>

namespace trireme::plan {
namespace {

int64_t value_dim(const Attention& a) { return a.value_dim > 0 ? a.value_dim : a.head_dim; }

/// Weights that a token is multiplied by, apart by how tensor parallelism treats them.
struct Products {
  int64_t split = 0;
  int64_t replicated = 0;
};

Products products_of(const Attention& a, int64_t hidden) {
  Products result;
  const int64_t out = a.heads * value_dim(a) * hidden;
  if (a.kv_rank > 0) {
    // DeepSeek-V2 (arXiv:2405.04434, section 2.1): down-projections are whole on every rank, up-projections are split by head.
    const int64_t query_dim = a.head_dim + a.rope_dim;
    if (a.q_rank > 0) {
      result.replicated += hidden * a.q_rank;
      result.split += a.q_rank * a.heads * query_dim;
    } else {
      result.split += hidden * a.heads * query_dim;
    }
    result.replicated += hidden * (a.kv_rank + a.rope_dim);
    result.split += a.kv_rank * a.heads * (a.head_dim + value_dim(a)) + out;
    return result;
  }
  result.split = hidden * (a.heads * a.head_dim + a.kv_heads * (a.head_dim + value_dim(a))) + out;
  return result;
}

LayerParameters parameters_of(const Attention& a, int64_t hidden) {
  const Products weights = products_of(a, hidden);
  LayerParameters result{weights.split, weights.replicated, 0};
  if (a.kv_rank > 0) {
    result.replicated += a.q_rank + a.kv_rank;  // the norms of the compressed vectors
    // A bias on latent attention sits on the down-projections only.
    if (a.qkv_bias) result.replicated += a.q_rank + a.kv_rank + a.rope_dim;
  } else if (a.qkv_bias) {
    result.split += a.heads * a.head_dim + a.kv_heads * (a.head_dim + value_dim(a));
  }
  if (a.out_bias) result.replicated += hidden;
  if (a.qk_norm) result.replicated += 2 * a.head_dim;
  if (a.sinks) result.split += a.heads;
  result.split += a.relative_buckets * a.heads;
  return result;
}

/// Products of one feed-forward block: up, gate where there is one, down.
int64_t feed_forward_weights(int64_t hidden, int64_t width, bool gated) { return (gated ? 3 : 2) * hidden * width; }

int64_t one_expert(const Experts& e, int64_t hidden) {
  return feed_forward_weights(hidden, e.width, e.gated) + (e.bias ? (e.gated ? 2 : 1) * e.width + hidden : 0);
}

/// Pairs of a query and a key it sees, of one head.
double score_pairs(const Attention& a, double queries, double keys, bool causal_half) {
  const double seen = a.window > 0 ? std::min<double>(static_cast<double>(a.window), keys) : keys;
  // Query i of a causal window sees min(i, seen) keys; the half of the diagonal is left out, as sources do (s^2 / 2, not s (s + 1) / 2).
  if (a.causal && causal_half) return queries * seen - seen * seen / 2;
  return queries * seen;
}

double score_flops(const Attention& a, double queries, double keys, bool causal_half) {
  const double dims = static_cast<double>(a.head_dim + (a.kv_rank > 0 ? a.rope_dim : 0) + value_dim(a));
  return 2.0 * score_pairs(a, queries, keys, causal_half) * static_cast<double>(a.heads) * dims;
}

}  // namespace

int64_t ModelDesc::num_layers() const {
  int64_t number = 0;
  for (const LayerRun& run : layers) number += run.count;
  return number;
}

LayerParameters parameters_of(const TransformerLayer& layer, int64_t hidden) {
  LayerParameters result = parameters_of(layer.attention, hidden);
  if (layer.cross_attention) {
    const LayerParameters cross = parameters_of(*layer.cross_attention, hidden);
    result.split += cross.split;
    result.replicated += cross.replicated;
  }
  if (const auto& f = layer.feed_forward) {
    result.split += feed_forward_weights(hidden, f->width, f->gated);
    if (f->bias) {
      result.split += (f->gated ? 2 : 1) * f->width;
      result.replicated += hidden;
    }
  }
  if (const auto& e = layer.experts) {
    result.experts += e->count * one_expert(*e, hidden);
    result.split += feed_forward_weights(hidden, e->shared_width, e->gated);
    result.replicated += hidden * e->count + (e->router_bias ? e->count : 0) + (e->shared_gate ? hidden : 0);
  }
  result.replicated += layer.norms * hidden * (layer.norm_bias ? 2 : 1);
  return result;
}

int64_t total_parameters(const ModelDesc& model) {
  int64_t total = model.first_parameters + model.last_parameters + model.positions * model.hidden;
  total += model.vocab * model.hidden * (model.head && !model.tied ? 2 : 1);
  for (const LayerRun& run : model.layers) total += run.count * parameters_of(run.layer, model.hidden).total();
  for (const Operator& op : model.operators) total += op.parameters;
  return total;
}

int64_t active_parameters(const ModelDesc& model) {
  int64_t active = total_parameters(model);
  for (const LayerRun& run : model.layers) {
    if (const auto& e = run.layer.experts) active -= run.count * (e->count - e->active) * one_expert(*e, model.hidden);
  }
  return active;
}

LayerFlops forward_flops(const TransformerLayer& layer, int64_t hidden, int64_t sequence, bool causal_half) {
  // In double from the start: 96 B s L h^2 of a model of 1T parameters passes 2^63.
  const double tokens = static_cast<double>(sequence);
  const auto products = [&](const Attention& a) {
    const Products p = products_of(a, hidden);
    return 2.0 * tokens * static_cast<double>(p.split + p.replicated);
  };
  LayerFlops result;
  result.projections = products(layer.attention);
  result.scores = score_flops(layer.attention, tokens, tokens, causal_half);
  if (layer.cross_attention) {
    result.projections += products(*layer.cross_attention);
    result.scores += score_flops(*layer.cross_attention, tokens, tokens, causal_half);
  }
  if (const auto& f = layer.feed_forward)
    result.projections += 2.0 * tokens * static_cast<double>(feed_forward_weights(hidden, f->width, f->gated));
  if (const auto& e = layer.experts) {
    const auto shared = static_cast<double>(feed_forward_weights(hidden, e->shared_width, e->gated));
    result.projections += 2.0 * tokens * (shared + static_cast<double>(hidden * e->count));
    result.experts = 2.0 * tokens * static_cast<double>(e->active) *
                     static_cast<double>(feed_forward_weights(hidden, e->width, e->gated));
  }
  return result;
}

double forward_flops(const Operator& op) {
  const auto in = static_cast<double>(op.in);
  const auto out = static_cast<double>(op.out);
  const auto positions = static_cast<double>(op.positions);
  switch (op.kind) {
    case OperatorKind::kConvolution:
      return 2.0 * positions * out * in / static_cast<double>(op.groups) * static_cast<double>(op.kernel);
    case OperatorKind::kLinear:
      return 2.0 * positions * in * out;
    case OperatorKind::kBatchedMatmul:
      return 2.0 * static_cast<double>(op.groups) * positions * in * out;
    default:
      return 0;
  }
}

double forward_flops(const ModelDesc& model, int64_t sequence, bool causal_half) {
  double flops = model.first_flops + model.last_flops;
  for (const LayerRun& run : model.layers) {
    flops += static_cast<double>(run.count) * forward_flops(run.layer, model.hidden, sequence, causal_half).total();
  }
  // The look-up of a token's row is no product, whether or not the head shares the table.
  if (model.head) {
    flops += 2.0 * static_cast<double>(sequence) * static_cast<double>(model.vocab) * static_cast<double>(model.hidden);
  }
  for (const Operator& op : model.operators) flops += forward_flops(op);
  return flops;
}

}  // namespace trireme::plan
