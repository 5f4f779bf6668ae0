// How long one optimizer step takes. Every formula is derived in docs/planner_costs.md, in the order of this file.
#include "plan/time_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme::plan {

namespace {

constexpr Bytes kOptimizerBytes{30};  ///< of one parameter
constexpr Seconds kOptimizerSeconds{5e-3}, kMicroStepSeconds{1e-4}, kMessageLatency{1e-4};
constexpr double kSendExposed = 0.15, kSendExposedInterleaved = 0.05;
constexpr double kSelectiveOperators = 0.35, kSelectiveLayers = 0.5;
constexpr double kHidesBehindBackward = 2.0 / 3;  ///< of a micro-step
constexpr double kCompressionPasses =
    6;  // gradient and kept error read, error and codes written; codes of all ranks read, result written
constexpr BytesPerSecond kHostMemory{
    200e9};  // of a host: one socket of 8 channels DDR4-3200 (204.8 GB/s), the other one's is not counted on

/// Who reduces gradients and gathers weights together, and over which network.
struct Replicas {
  const MachineNumbers& hw;
  double ranks, near, beside;
};

Replicas replicas_of(const MachineNumbers& own, const Plan& plan) {
  const MachineNumbers& hw = own.replicas != nullptr ? *own.replicas : own;
  const double ranks = static_cast<double>(plan.dp) * static_cast<double>(plan.cp);
  const double near =
      std::max(1.0, std::min(ranks, std::floor(hw.domain / static_cast<double>(plan.tp))));  // those of one link domain
  return {hw, ranks, near, std::max(1.0, std::floor(hw.per_host / std::min<double>(near, hw.per_host)))};
}

/// What recomputation repeats of a layer's forward.
struct Again {
  double all = 0, attention = 0, collectives = 0;
};

Again again_of(const Plan& plan, const MachineNumbers& hw) {
  Again again;
  switch (plan.recompute) {
    case Recompute::kNone:
      break;
    case Recompute::kSelective:
      if (hw.selective_is_attention)
        again.attention = hw.fused_attention ? 0 : 1;
      else
        again.all = kSelectiveOperators;
      break;
    case Recompute::kSelectiveOperators:
      again.all = kSelectiveOperators;
      break;
    case Recompute::kSelectiveLayers:
      again.all = again.collectives = kSelectiveLayers;
      break;
    case Recompute::kFull:
      again.all = again.collectives = 1;
      break;
  }
  again.all *= plan.recompute_share, again.attention *= plan.recompute_share, again.collectives *= plan.recompute_share;
  return again;
}

/// One layer of a kind, all passes of one micro-step.
struct KindTime {
  TimeParts parts;
  Seconds seconds, gather;
  Seconds forward, weight, recompute;  ///< of seconds; the rest is the gradient of the input
  double parameters = 0;               ///< on this rank
};

KindTime kind_time(const LayerNumbers& layer, const LayerTime& time, const ModelNumbers& model,
                   const MachineNumbers& hw, const TrainingNumbers& training, const Plan& plan,
                   const Replicas& replicas) {
  const Again again = again_of(plan, hw);
  KindTime kind;
  TimeParts& p = kind.parts;
  p.matmul = time.matmul_forward + time.matmul_backward;
  p.attention = time.attention_forward + time.attention_backward;
  p.elementwise = 3 * time.element_forward;
  p.recompute = again.all * (time.matmul_forward + time.element_forward + time.attention_forward) +
                again.attention * time.attention_forward +
                again.collectives * (time.tensor + time.expert + time.context);
  p.tensor_parallel = 2 * time.tensor;
  p.expert_parallel = 2 * time.expert;
  p.context_parallel = 3 * time.context;
  const double launches = (time.launches_forward * (1 + again.all) + time.launches_backward) * hw.launched_share +
                          time.collectives * (2 + again.collectives);
  const Seconds device = p.total();
  kind.seconds = soft_max(device, launches * hw.launch);
  p.launch = kind.seconds - device;
  if (device.value > 0) {
    const double stretch = kind.seconds / device;
    kind.forward = stretch * (time.matmul_forward + time.attention_forward + time.element_forward + time.tensor +
                              time.expert + time.context);
    kind.weight = stretch * time.matmul_weight;
    kind.recompute = stretch * p.recompute;
  }
  const double tp = static_cast<double>(plan.tp);
  kind.parameters = layer.split / tp + layer.replicated + layer.expert_weights / static_cast<double>(plan.ep);
  if (plan.offload_activations && hw.host_link.value > 0) {
    // Out behind forward, back behind backward: only what takes longer than computing shows.
    const Seconds transfer =
        2 * plan.recompute_share * layer_activation_bytes(layer, model, hw, training, plan) / hw.host_link;
    kind.gather = std::max(Seconds{}, transfer - kind.seconds);
  }
  if (plan.zero_stage == 3) {
    const double ranks = plan.shard_ranks > 0 ? static_cast<double>(plan.shard_ranks) : replicas.ranks;
    const double near = std::min(replicas.near, ranks);
    MachineNumbers gathering = replicas.hw;
    gathering.network *= hw.gather_share;
    const Seconds gathered =
        gather_seconds(gathering, kind.parameters * training.gather_bytes, ranks, near, replicas.beside);
    const Seconds reduced =
        gather_seconds(gathering, kind.parameters * training.gradient_bytes, ranks, near, replicas.beside);
    const Seconds comm = 2 * gathered + reduced;
    // The longer of the two, and the part of the shorter that does not hide behind it.
    kind.gather =
        std::max(kind.seconds, comm) + (1 - hw.overlap) * std::min(kind.seconds, comm) - kind.seconds + kind.gather;
  }
  return kind;
}

/// What shows of `comm`, which may run beside one backward of `micro_step`.
Seconds exposed(Seconds comm, const MachineNumbers& hw, Seconds micro_step, double hideable_share = 1) {
  if (!hw.hides_gradients) return comm;
  return comm - std::min({comm * hw.overlap, comm * hideable_share, micro_step * kHidesBehindBackward});
}

/// Reduction of the gradients of `parameters` weights, `experts` of them experts', over all replicas, for a whole step.
Seconds gradient_seconds(double parameters, double experts, Seconds micro_step, double micro_steps,
                         const MachineNumbers& hw, const Replicas& r, const TrainingNumbers& training,
                         const Plan& plan) {
  const Bytes bytes = parameters * training.gradient_bytes;
  const Bytes sent = bytes * plan.compression;
  // Buckets pay the latency one by one, and the last one cannot run beside the backward that fills it.
  const double buckets =
      plan.bucket_bytes > 0 ? std::max(1.0, std::ceil(bytes / Bytes{static_cast<double>(plan.bucket_bytes)})) : 1;
  const double hideable = plan.bucket_bytes > 0 ? 1 - 1 / buckets : 1;
  const Seconds latency =
      buckets > 1 ? (buckets - 1) * gather_seconds(r.hw, Bytes{}, r.ranks, r.near, r.beside) : Seconds{};
  const Seconds coding = plan.compression < 1 ? kCompressionPasses * bytes / hw.memory : Seconds{};
  const Seconds scattered = gather_seconds(r.hw, sent, r.ranks, r.near, r.beside) + latency;
  if (plan.zero_stage == 0) return coding + exposed(2 * scattered, hw, micro_step, hideable);
  const Seconds gathered =
      gather_seconds(r.hw, parameters * training.weight_bytes, r.ranks, r.near, r.beside) + latency;
  const Seconds once = exposed(scattered + gathered, hw, micro_step, hideable) + coding;
  if (plan.zero_stage < 2) return once;
  // A rank keeps its part of the gradients only, so each micro-step reduces anew; those of experts over the few ranks that hold the same ones.
  const double same = std::max(1.0, r.ranks * static_cast<double>(plan.tp) / static_cast<double>(plan.ep));
  const Seconds again = gather_seconds(r.hw, sent * (1 - experts / parameters), r.ranks, r.near, r.beside) +
                        gather_seconds(r.hw, sent * experts / parameters, same, std::min(r.near, same), r.beside) +
                        latency;
  return once + (micro_steps - 1) * (exposed(again, hw, micro_step, hideable) + coding);
}

Seconds optimizer_seconds(double parameters, const MachineNumbers& hw, const TrainingNumbers& training,
                          const Plan& plan) {
  if (!plan.offload_optimizer) return kOptimizerBytes * parameters / hw.memory + kOptimizerSeconds;
  // Gradients to the host, its step, and weights back while it goes on.
  const Seconds host = kOptimizerBytes * parameters * hw.per_host / kHostMemory;
  return parameters * training.gradient_bytes / hw.host_link +
         std::max(host, parameters * training.weight_bytes / hw.host_link) + kOptimizerSeconds;
}

/// The layers of one machine's stages.
struct MachineTime {
  std::array<KindTime, ModelNumbers::kMaxKinds> kinds;
  Replicas replicas;
};

MachineTime machine_time(const ModelNumbers& model, const StageMachine& machine, const TrainingNumbers& training,
                         const Plan& plan) {
  MachineTime time{.kinds = {}, .replicas = replicas_of(*machine.hw, plan)};
  for (int i = 0; i < model.num_kinds; ++i)
    time.kinds[i] =
        kind_time(model.kinds[i], machine.work->layers[i], model, *machine.hw, training, plan, time.replicas);
  return time;
}

/// Idle time of the slowest rank while the other ranks fill and drain the pipeline, from what each of them computes in a micro-step.
Seconds bubble_of(const StageSeconds& other, const Plan& plan) {
  const Seconds f = other.forward, back = other.recompute + other.input, w = other.weight;
  if (plan.schedule == "zb1p") return std::max(f, f + back - w);
  // The next two end with a barrier: their ranks start, and end, one after the other.
  if (plan.schedule == "zb2p") return std::max(f, f + back - 2 * w);
  if (plan.schedule == "zbv") return std::max({f / 2, back / 2, back - w});
  return other.total() / static_cast<double>(plan.virtual_stages);
}

}  // namespace

StageRange stage_layers(int layers, int ranks, int rank) {
  if (layers % ranks == 0) return {layers / ranks * rank, layers / ranks * (rank + 1)};
  const int places = (layers + 2 + ranks - 1) / ranks;
  const auto begin = [&](int r) { return r == 0 ? 0 : std::clamp(places * r - 1, 0, layers); };
  return {begin(rank), rank + 1 == ranks ? layers : begin(rank + 1)};
}

StageRange stage_layers(const ModelNumbers& model, const Plan& plan, int rank) {
  if (plan.stage_layers.empty()) return stage_layers(static_cast<int>(model.layers), static_cast<int>(plan.pp), rank);
  StageRange range;
  for (int r = 0; r < rank; ++r) range.first += plan.stage_layers[r];
  range.last = range.first + plan.stage_layers[rank];
  return range;
}

TimeParts pipeline_step_time(const ModelNumbers& model, std::span<const StageMachine> machines,
                             const TrainingNumbers& training, const Plan& plan, PipelineDetail* detail) {
  const auto dp = static_cast<double>(plan.dp), tp = static_cast<double>(plan.tp), pp = static_cast<double>(plan.pp),
             cp = static_cast<double>(plan.cp), b = static_cast<double>(plan.micro_batch);
  const double micro_steps = training.global_batch / (b * dp);
  const double tokens = b * training.sequence / cp;
  const bool interleaved = plan.virtual_stages > 1;
  const bool sharded = plan.zero_stage == 3;
  const double vocab = vocab_rows(model, tp);
  const int ranks = static_cast<int>(pp);
  const auto machine_of = [&](int rank) -> const StageMachine& { return machines[machines.size() == 1 ? 0 : rank]; };

  // Stages. All but the first and the last of a uniform model are alike, but counting them one by one is cheap.
  std::vector<MachineTime> times;  // of the distinct machines, in the order of the stages
  times.reserve(machines.size());
  TimeParts step;
  Seconds slowest, sum, bubble, optimizer, gradients;
  BytesPerSecond rate{HUGE_VAL};
  const bool one_kind =
      std::all_of(machines.begin(), machines.end(), [&](const StageMachine& m) { return m.hw == machines.front().hw; });
  // One boundary that leaves the link domain is enough: the slowest sets the pace.
  bool across = !one_kind;
  for (const StageMachine& machine : machines) across = across || tp * dp * cp * pp > machine.hw->domain;
  const bool last_is_first = plan.schedule == "zbv";  // embedding and head stand on one rank
  struct Segment {
    const MachineNumbers* hw;
    size_t time;
    double parameters, experts;  ///< of the fullest rank
  };
  std::vector<Segment> segments;
  StageSeconds slowest_stage;
  int slowest_rank = 0;
  int layer = 0;
  for (int r = 0; r < ranks; ++r) {
    const StageMachine& machine = machine_of(r);
    const MachineNumbers& hw = *machine.hw;
    if (segments.empty() || segments.back().hw != &hw) {
      times.push_back(machine_time(model, machine, training, plan));
      segments.push_back({&hw, times.size() - 1, 0, 0});
      rate = std::min(rate, across ? hw.network / std::min<double>(hw.per_host, tp * dp * cp) : hw.link);
    }
    const MachineTime& time = times.back();
    StageRange range{layer, layer};
    if (plan.stage_layers.empty())
      range = stage_layers(static_cast<int>(model.layers), ranks, r);
    else
      range.last = layer += plan.stage_layers[r];
    Seconds seconds = kMicroStepSeconds;
    double parameters = 0, experts = 0;
    StageSeconds stage;
    for (int i = 0; i < model.num_kinds; ++i) {
      const double n = model.layers_before[range.last][i] - model.layers_before[range.first][i];
      const KindTime& kind = time.kinds[i];
      seconds += n * (kind.seconds + kind.gather);
      parameters += n * kind.parameters;
      experts += n * model.kinds[i].expert_weights / static_cast<double>(plan.ep);
      stage.forward += n * kind.forward;
      stage.weight += n * kind.weight;
      stage.recompute += n * kind.recompute;
    }
    if (r == 0) {
      seconds += machine.work->embed;
      parameters += vocab * model.hidden;
    }
    if (r + 1 == ranks) {
      const bool here = !last_is_first;
      if (here) seconds += machine.work->head;
      if (here) stage.forward += machine.work->head_forward;
      if (here) stage.weight += machine.work->head_weight;
      if (here && !(model.tied && ranks == 1)) parameters += vocab * model.hidden;
    }
    if (r == 0 && last_is_first) {
      seconds += machine.work->head;
      stage.forward += machine.work->head_forward;
      stage.weight += machine.work->head_weight;
      if (!model.tied) parameters += vocab * model.hidden;
    }
    stage.input = seconds - stage.forward - stage.weight - stage.recompute;
    sum += seconds;
    bubble += bubble_of(stage, plan);
    if (detail != nullptr) detail->stages.push_back(stage);
    if (parameters > segments.back().parameters) {
      segments.back().parameters = parameters;
      segments.back().experts = experts;
    }
    if (seconds > slowest) {
      slowest = seconds;
      slowest_rank = r;
      slowest_stage = stage;
    }
  }
  if (detail != nullptr) detail->slowest_rank = slowest_rank;

  {
    const StageMachine& machine = machine_of(slowest_rank);
    const auto segment =
        std::find_if(segments.begin(), segments.end(), [&](const Segment& s) { return s.hw == machine.hw; });
    const MachineTime& time = times[segment->time];
    const StageRange range = stage_layers(model, plan, slowest_rank);
    for (int i = 0; i < model.num_kinds; ++i) {
      const double n = micro_steps * (model.layers_before[range.last][i] - model.layers_before[range.first][i]);
      const TimeParts& p = time.kinds[i].parts;
      step.matmul += n * p.matmul;
      step.attention += n * p.attention;
      step.elementwise += n * p.elementwise;
      step.recompute += n * p.recompute;
      step.tensor_parallel += n * p.tensor_parallel;
      step.expert_parallel += n * p.expert_parallel;
      step.context_parallel += n * p.context_parallel;
      step.launch += n * p.launch;
      step.gather += n * time.kinds[i].gather;
    }
    const bool has_head = last_is_first ? slowest_rank == 0 : slowest_rank + 1 == ranks;
    step.head = micro_steps *
                ((slowest_rank == 0 ? machine.work->embed : Seconds{}) + (has_head ? machine.work->head : Seconds{}));
    step.fixed = micro_steps * kMicroStepSeconds;
  }

  // Pipeline.
  if (ranks > 1) {
    step.bubble = plan.schedule.starts_with("zb") ? bubble - bubble_of(slowest_stage, plan)
                                                  : (sum - slowest) / static_cast<double>(plan.virtual_stages);
    Bytes message = tokens * model.hidden * machines.front().hw->element;
    if (machines.front().hw->splits_messages || plan.sequence_parallel) message /= tp;
    const Seconds send = 2 * (kMessageLatency + message / rate);
    if (detail != nullptr) {
      detail->message_bytes = message;
      detail->message_latency = kMessageLatency;
      detail->message_rate = rate;
    }
    step.pipeline =
        (pp - 1) * send +
        micro_steps * send *
            (interleaved ? kSendExposedInterleaved * static_cast<double>(plan.virtual_stages) : kSendExposed);
    if (model.tied && !last_is_first) {
      const Bytes bytes = vocab * model.hidden * training.gradient_bytes;
      step.gradients += across ? 2 * kNetworkLatency + bytes / rate : bytes / machines.front().hw->link;
    }
  }

  // Gradients of data-parallel replicas, and the optimizer: the machine with the longest sets the pace.
  for (const Segment& segment : segments) {
    const Replicas& replicas = times[segment.time].replicas;
    if (replicas.ranks > 1 && !sharded && !training.frozen_base) {
      gradients = std::max(gradients, gradient_seconds(segment.parameters, segment.experts, slowest, micro_steps,
                                                       *segment.hw, replicas, training, plan));
    } else if (sharded && plan.shard_ranks > 0 && static_cast<double>(plan.shard_ranks) < replicas.ranks) {
      const double copies = static_cast<double>(plan.shard_ranks);
      const Bytes shard = segment.parameters / copies * training.gradient_bytes;
      Seconds comm = allreduce_seconds(replicas.hw, shard, replicas.ranks / copies, 1, replicas.hw.per_host);
      if (segment.hw->hides_gradients) comm *= 1 - segment.hw->overlap;
      gradients = std::max(gradients, comm);
    }
    if (!training.frozen_base) {
      double parameters = segment.parameters;
      if (plan.zero_stage > 0)
        parameters /= plan.shard_ranks > 0 ? static_cast<double>(plan.shard_ranks) : replicas.ranks;
      optimizer = std::max(optimizer, optimizer_seconds(parameters, *segment.hw, training, plan));
    }
  }
  step.gradients += gradients;
  step.optimizer = optimizer;
  return step;
}

Seconds least_step_time(const ModelNumbers& model, const StageMachine& machine, const TrainingNumbers& training,
                        const Plan& plan) {
  const Replicas replicas = replicas_of(*machine.hw, plan);
  const auto ranks = static_cast<double>(plan.pp), chunks = static_cast<double>(plan.virtual_stages);
  Seconds all = machine.work->embed + machine.work->head + ranks * kMicroStepSeconds;
  for (int i = 0; i < model.num_kinds; ++i) {
    const KindTime kind =
        kind_time(model.kinds[i], machine.work->layers[i], model, *machine.hw, training, plan, replicas);
    all += static_cast<double>(model.layers_before.back()[i]) * (kind.seconds + kind.gather);
  }
  const double micro_steps = training.global_batch / static_cast<double>(plan.micro_batch * plan.dp);
  constexpr double kRounding = 1 - 1e-9;
  if (plan.pp == 1 || plan.schedule.starts_with("zb")) return kRounding * micro_steps / ranks * all;
  // m x slowest + (all - slowest) / v grows with the slowest stage, which takes at least the mean.
  return kRounding * ((micro_steps - 1 / chunks) / ranks + 1 / chunks) * all;
}

std::vector<Seconds> seconds_before(const ModelNumbers& model, const StageMachine& machine,
                                    const TrainingNumbers& training, const Plan& plan) {
  const MachineTime time = machine_time(model, machine, training, plan);
  std::vector<Seconds> before = {Seconds{}};
  before.reserve(model.kind_of.size() + 1);
  for (const uint8_t kind : model.kind_of)
    before.push_back(before.back() + time.kinds[kind].seconds + time.kinds[kind].gather);
  return before;
}

TimeParts step_time(const ModelNumbers& model, const MachineNumbers& hw, const TrainingNumbers& training,
                    const Plan& plan, PipelineDetail* detail) {
  if (!model.operators.empty()) return operator_step_time(model, hw, training, plan);
  const MicroStepWork work = micro_step_work(model, hw, training, plan);
  const StageMachine machine{&hw, &work};
  return pipeline_step_time(model, {&machine, 1}, training, plan, detail);
}

}  // namespace trireme::plan
