// From descriptions to plain numbers.
#include "plan/numbers.h"

#include <algorithm>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::plan {

namespace {

LayerNumbers layer_numbers(const TransformerLayer& layer, int64_t hidden) {
  const Attention& a = layer.attention;
  LayerNumbers n;
  const double heads = static_cast<double>(a.heads),
               kv_heads = static_cast<double>(a.kv_heads > 0 ? a.kv_heads : a.heads);
  const double key = static_cast<double>(a.head_dim) + (a.kv_rank > 0 ? static_cast<double>(a.rope_dim) : 0);
  const double value = static_cast<double>(a.value_dim > 0 ? a.value_dim : a.head_dim);
  n.heads = heads;
  n.kv_heads = kv_heads;
  n.head_dim = static_cast<double>(a.head_dim);
  n.key_dim = key;
  n.value_dim = value;
  n.q_width = heads * key;
  n.kv_width = a.kv_rank > 0 ? heads * (static_cast<double>(a.head_dim) + value)
                             : kv_heads * (static_cast<double>(a.head_dim) + value);
  n.out_width = heads * value;
  n.score_width = heads * (key + value);
  n.q_rank = static_cast<double>(a.q_rank);
  n.kv_rank = static_cast<double>(a.kv_rank);
  n.rope_dim = static_cast<double>(a.rope_dim);
  n.window = static_cast<double>(a.window);
  n.causal = a.causal;
  n.cross = layer.cross_attention.has_value();
  if (layer.feed_forward) {
    n.ffn = static_cast<double>(layer.feed_forward->width);
    n.gates = layer.feed_forward->gated ? 3 : 2;
  }
  if (layer.experts) {
    n.experts = static_cast<double>(layer.experts->count);
    n.active = static_cast<double>(layer.experts->active);
    n.expert_width = static_cast<double>(layer.experts->width);
    n.shared_width = static_cast<double>(layer.experts->shared_width);
    n.expert_gates = layer.experts->gated ? 3 : 2;
  }
  const LayerParameters p = parameters_of(layer, hidden);
  n.split = static_cast<double>(p.split);
  n.replicated = static_cast<double>(p.replicated);
  n.expert_weights = static_cast<double>(p.experts);
  return n;
}

}  // namespace

ModelNumbers numbers_of(const ModelDesc& model) {
  ModelNumbers n;
  n.hidden = static_cast<double>(model.hidden);
  n.vocab = static_cast<double>(model.vocab);
  n.positions = static_cast<double>(model.positions);
  n.layers = static_cast<double>(model.num_layers());
  n.operators = model.operators;
  n.tied = model.tied;
  n.head = model.head;
  n.first_parameters = static_cast<double>(model.first_parameters);
  n.last_parameters = static_cast<double>(model.last_parameters);
  std::array<int32_t, ModelNumbers::kMaxKinds> before{};
  n.layers_before.push_back(before);
  for (const LayerRun& run : model.layers) {
    const LayerNumbers layer = layer_numbers(run.layer, model.hidden);
    int kind = 0;
    while (kind < n.num_kinds && !(n.kinds[kind] == layer)) ++kind;
    if (kind == ModelNumbers::kMaxKinds) {
      throw Error(ErrorKind::kConfig, str("[plan.model] model '", model.name, "' has more than ", kind,
                                          " different kinds of layers. Describe layers that cost the same alike."));
    }
    if (kind == n.num_kinds) n.kinds[n.num_kinds++] = layer;
    for (int64_t i = 0; i < run.count; ++i) {
      n.kind_of.push_back(static_cast<uint8_t>(kind));
      ++before[kind];
      n.layers_before.push_back(before);
    }
  }
  return n;
}

MachineNumbers numbers_of(const Machine& machine, const Training& training) {
  return numbers_of(machine.device, machine.cluster, machine.software, training, machine.cluster.devices_per_host);
}

MachineNumbers numbers_of(const DeviceDesc& d, const ClusterDesc& c, const SoftwareProfile& s, const Training& training,
                          int devices_per_host) {
  MachineNumbers n;
  const auto peak = [&d](const char* precision) {
    const auto it = d.peak_flops.find(precision);
    return FlopsPerSecond{it == d.peak_flops.end() ? 0.0 : it->second.value};
  };
  const double rate = s.framework_rate.value > 0 ? s.framework_rate.value : 1;
  const bool wide = training.precision == "fp32" || training.precision == "tf32";
  const FlopsPerSecond peak16 = std::max(peak("bf16"), peak("fp16"));
  const FlopsPerSecond base = training.precision == "fp32"   ? peak("fp32")
                              : training.precision == "tf32" ? peak("tf32")
                                                             : peak16;
  n.plain = base * d.matmul_efficiency.value * rate;
  n.linear = n.plain;
  n.peak = base;
  if (training.precision == "fp8" || training.precision == "fp4") {
    n.peak = peak(training.precision.c_str());
    n.linear = n.peak * d.low_precision_efficiency.value * rate;
  }
  n.convolution = n.plain * (d.convolution_efficiency.value > 0 ? d.convolution_efficiency.value : 1);
  n.half_depth = d.matmul_half_depth.value;
  n.processors = std::max(1.0, d.processors.value);
  n.memory = BytesPerSecond{d.memory_bandwidth.value} * d.memory_efficiency.value * rate;
  n.attention = base * d.attention_efficiency.value *
                (s.attention_generation.value > 0 ? s.attention_generation.value : 1) * rate;
  n.batched = n.plain * d.batched_efficiency.value;
  n.element = Bytes{wide ? 4.0 : 2.0};
  n.link = BytesPerSecond{d.link_bandwidth.value} * d.link_efficiency.value;
  n.host_link = BytesPerSecond{d.host_link.value};
  n.link_latency = Seconds{c.link_latency.value};
  n.group = c.devices_per_group;
  n.group_link = BytesPerSecond{c.group_bandwidth.value};
  n.memory_bytes = Bytes{d.memory_bytes.value};
  n.per_host = std::max(devices_per_host, 1);
  n.domain = d.devices_per_domain > 0 ? d.devices_per_domain : n.per_host;
  n.network = BytesPerSecond{c.host_network.value} * c.network_efficiency.value;
  // A kernel of a recorded graph still costs its start on the device.
  constexpr double kGraphLaunch = 0.1, kCompiledLaunches = 0.5;
  n.launch = Seconds{c.launch_seconds.value} * (s.graphs ? kGraphLaunch : 1);
  n.launched_share = s.compiled ? kCompiledLaunches : 1;
  n.fused_attention = s.fused_attention;
  n.fused_loss = s.fused_loss;
  n.compiled = s.compiled;
  n.fused_norms = s.fused_norms;
  n.hides_gradients = s.hides_gradients;
  n.hides_tp = s.hides_tensor_parallel;
  n.splits_messages = s.splits_pipeline_messages;
  n.sends_once_per_host = s.sends_once_per_host;
  n.hides_experts = s.hides_expert_parallel;
  n.hides_expert_network = s.hides_expert_network;
  n.fused_experts = s.fused_experts && (training.precision == "fp8" || training.precision == "fp4");
  n.selective_is_attention = s.selective_is_attention;
  n.gathered_layers = s.gathered_layers;
  n.context = Bytes{s.context_bytes.value};
  n.overlap = s.overlap.value;
  n.gather_share = s.gather_share.value > 0 ? s.gather_share.value : 1;
  return n;
}

TrainingNumbers numbers_of(const Training& training) {
  TrainingNumbers n;
  n.global_batch = static_cast<double>(training.global_batch);
  n.sequence = static_cast<double>(training.sequence);
  n.gradient_bytes = Bytes{training.gradient_bytes};
  n.gather_bytes = Bytes{training.gather_bytes};
  n.optimizer_bytes = Bytes{training.optimizer_bytes};
  n.frozen_base = training.frozen_base;
  n.low_precision = training.precision == "fp8" || training.precision == "fp4";
  const bool wide = training.precision == "fp32" || training.precision == "tf32";
  n.weight_bytes = Bytes{training.weight_bytes > 0 ? training.weight_bytes : wide ? 4 : 2};
  n.accumulation_bytes = Bytes{training.accumulation_bytes};
  return n;
}

}  // namespace trireme::plan
