// The explained form of a prediction: the same numbers as step_time() and stage_memory(), each with its formula.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/str.h"
#include "plan/numbers.h"

namespace trireme::plan {

namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

void time_terms(Estimate& e, const ModelNumbers& model, const MachineNumbers& hw, const TrainingNumbers& training,
                const Plan& plan, const TimeParts& t) {
  const double m = training.global_batch / (static_cast<double>(plan.micro_batch) * static_cast<double>(plan.dp));
  const double tokens = static_cast<double>(plan.micro_batch) * training.sequence / static_cast<double>(plan.cp);
  const double layers = std::ceil(model.layers / static_cast<double>(plan.pp));
  const std::string per = str(number(m), " micro-steps x ", number(layers), " layers of the slowest stage, ",
                              number(tokens), " tokens each: ");
  const auto add = [&e](const char* name, Seconds time, std::string formula) {
    if (time.value > 0) e.time.push_back({name, time.value, std::move(formula)});
  };
  add("matrix products", t.matmul,
      str(per, "2 m n k / (", number(hw.linear.value / 1e12), " TFLOP/s x k / (k + ", number(hw.half_depth),
          ")), tiles in waves of ", hw.processors, ", forward and backward"));
  add("attention", t.attention,
      hw.fused_attention ? str(per, "scores and sums at ", number(hw.attention.value / 1e12),
                               " TFLOP/s (causal half), backward 2.5 x forward")
                         : str(per, "batched products at ", number(hw.batched.value / 1e12),
                               " TFLOP/s, 15 passes over the scores at ", number(hw.memory.value / 1e9), " GB/s"));
  add("element-wise", t.elementwise,
      str(per, "passes over activations at ", number(hw.memory.value / 1e9), " GB/s, backward twice the forward",
          plan.tp > 1 && !plan.sequence_parallel ? "; norms repeated on each tensor-parallel rank" : ""));
  add("recomputation", t.recompute, "forward again (or its part), with its collectives");
  add("tensor-parallel collectives", t.tensor_parallel,
      str(per, "2 forward and 2 backward all-reduces over ", plan.tp, " ranks of ",
          number((tokens * model.hidden * hw.element).value / 1e6), " MB at ", number(hw.link.value / 1e9),
          " GB/s bus, latency ", number(hw.link_latency.value * 1e6), " us",
          hw.hides_tp ? str("; ", number(hw.overlap), " of it hidden") : ""));
  add("expert all-to-all", t.expert_parallel,
      str(per, "tokens to their experts and back over ", plan.ep, " ranks, forward and backward"));
  add("context-parallel exchange", t.context_parallel, str(per, "keys and values round ", plan.cp, " ranks"));
  add("kernel launches", t.launch,
      str("where launching takes longer than computing, ", number(hw.launch.value * 1e6), " us each"));
  add("embedding, head and loss", t.head,
      str(number(m), " micro-steps: vocabulary ", model.vocab, " / tp ", plan.tp, hw.fused_loss ? ", fused loss" : ""));
  add("pipeline bubble", t.bubble,
      plan.schedule.starts_with("zb")
          ? str(plan.schedule, ": what the other ", plan.pp - 1, " stages' forwards and gradients of inputs leave idle")
          : str("the other ", plan.pp - 1, " stages once, / ", plan.virtual_stages, " virtual stages"));
  add("pipeline sends", t.pipeline,
      str(plan.pp - 1, " boundaries to fill the pipeline, and the part of each micro-step's send that is not hidden"));
  add("data-parallel gradients", t.gradients,
      str("reduction over ", plan.dp * plan.cp, " ranks, ", number(training.gradient_bytes.value), " B each; network ",
          number(hw.network.value / 1e9), " GB/s a host",
          hw.hides_gradients ? str("; up to ", number(hw.overlap), " of it hidden") : "; not hidden",
          plan.zero_stage == 2 && m > 1 ? "; in each micro-step" : "",
          plan.compression < 1 ? str("; ", plan.compression, " of the bytes sent") : ""));
  add("weight gather", t.gather,
      str("ZeRO-3: the longer of computing and communicating, and ", number(1 - hw.overlap), " of the shorter"));
  add("optimizer", t.optimizer,
      plan.offload_optimizer ? str("gradients to the host and weights back at ", number(hw.host_link.value / 1e9),
                                   " GB/s, its step there, and 5 ms")
                             : "30 B of memory traffic for each parameter of the rank, and 5 ms");
  add("fixed", t.fixed, str(number(m), " micro-steps x 0.1 ms"));
}

void memory_terms(StageMemory& stage, const MemoryParts& m, const TrainingNumbers& training, const Plan& plan) {
  const auto add = [&stage](const char* name, Bytes bytes, std::string formula) {
    if (bytes.value > 0) stage.terms.push_back({name, bytes.value, std::move(formula)});
  };
  const auto split = [&plan](int from) {
    return plan.zero_stage >= from
               ? str(" / ", plan.shard_ranks > 0 && from == 3 ? plan.shard_ranks : plan.dp * plan.cp, " ranks")
               : std::string();
  };
  add("parameters", m.weights, str(number(training.weight_bytes.value), " B each", split(3)));
  add("gradients", m.gradients,
      str(number(training.gradient_bytes.value), " B each", split(2),
          training.accumulation_bytes.value > 0 ? str(", and ", number(training.accumulation_bytes.value), " B unsplit")
                                                : "",
          plan.compression < 1 ? ", and what compression has not sent yet" : ""));
  add("optimizer", m.optimizer, str(number(training.optimizer_bytes.value), " B each", split(1)));
  add("activations", m.activations, "kept for backward by all micro-steps in flight on this stage");
  add("temporaries", m.temporaries, "the larger of the head's backward and the widest layer's");
  add(plan.zero_stage == 3 ? "gathered weights" : "buckets", m.gathered,
      plan.zero_stage == 3 ? "two layers whole, and the whole gradient of one"
                           : "one is filled while another is reduced");
  add("allocator rounding", m.rounding, "of activations to blocks of 512 B, places in 20 MiB, or multiples of 2 MiB");
  add("context", m.context, "of the process beside its tensors");
}

}  // namespace

Result<Estimate> estimate(const ModelDesc& model, const Machine& machine, const Training& training, const Plan& plan) {
  if (!model.is_transformer() && model.operators.empty())
    return Reason{str("'", model.name, "' has neither layers nor operators")};
  const ModelNumbers mn = numbers_of(model);
  const MachineNumbers hw = numbers_of(machine, training);
  const TrainingNumbers tn = numbers_of(training);
  if (const PlanFault fault = check_plan(mn, tn, plan); fault != PlanFault::kNone)
    return Reason{text_of(fault, mn, tn, plan)};
  if (hw.linear.value <= 0) return Reason{str("device ", machine.device.name, " has no peak for ", training.precision)};

  Estimate e;
  const TimeParts t = step_time(mn, hw, tn, plan);
  e.step_seconds = t.total().value;
  const double spread = !machine.device.measured                                    ? 0.25
                        : machine.cluster.calibrated && machine.software.calibrated ? 0.08
                                                                                    : 0.15;
  e.low_seconds = e.step_seconds / (1 + spread);
  e.high_seconds = e.step_seconds * (1 + spread);
  e.tokens_per_second = tn.global_batch * (tn.sequence > 0 ? tn.sequence : 1) / e.step_seconds;
  const double devices = static_cast<double>(plan.dp * plan.tp * plan.pp * plan.cp);
  e.mfu =
      3 * forward_flops(model, training.sequence, false) * tn.global_batch / (e.step_seconds * devices * hw.peak.value);
  time_terms(e, mn, hw, tn, plan, t);
  for (int rank = 0; rank < static_cast<int>(plan.pp); ++rank) {
    const MemoryParts m = stage_memory(mn, hw, tn, plan, rank);
    StageMemory stage;
    stage.stage_rank = rank;
    stage.parameters = m.weights.value;
    stage.gradients = m.gradients.value;
    stage.optimizer = m.optimizer.value;
    stage.activations = m.activations.value;
    stage.communication = m.gathered.value;
    stage.temporaries = m.temporaries.value;
    stage.rounding = m.rounding.value;
    stage.context = m.context.value;
    memory_terms(stage, m, tn, plan);
    if (stage.total() > e.peak_bytes) {
      e.peak_bytes = stage.total();
      e.peak_rank = rank;
    }
    e.memory.push_back(std::move(stage));
  }
  if (!machine.device.measured)
    e.unmodelled.push_back(str(machine.device.name, ": datasheet only, no run of this device was ever compared"));
  if (!machine.cluster.calibrated)
    e.unmodelled.emplace_back("cluster uncalibrated: launch time, in-host latency and network rate are defaults");
  if (!machine.software.calibrated)
    e.unmodelled.emplace_back("software uncalibrated: its overlap and fused kernels are defaults");
  if (near_memory_limit(Bytes{e.peak_bytes}, hw.memory_bytes)) e.unmodelled.emplace_back(kNearMemoryLimit);
  for (const std::string& approximation : model.approximations) e.unmodelled.push_back(approximation);
  return e;
}

}  // namespace trireme::plan
