// From flags to a schedule and its costs.
#include <cstdlib>

#include "base/read_file.h"
#include "base/str.h"
#include "cli/simulate_flags.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

constexpr double kMilli = 1e-3, kMicro = 1e-6, kMega = 1e6, kGiga = 1e9;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kConfig, "[cli.simulate] " + what); }

bool is_file(const std::string& schedule) {
  return schedule.find('/') != std::string::npos || schedule.ends_with(".csv");
}

plan::Schedule read_schedule(const std::string& path) {
  const std::string text = read_file(path, "cli.simulate", "a schedule (CSV), or the name of one,");
  plan::ScheduleFile file = plan::read_schedule_csv(text, path);
  if (file.has_communication || file.schedule.size() == 1) return std::move(file.schedule);
  return plan::add_communication(file.schedule, file.splits_backward);
}

/// "2=1.3" for rank 2.
std::vector<double> factors(const char* flag, const std::vector<std::string>& words, size_t ranks) {
  if (words.empty()) return {};
  std::vector<double> result(ranks, 1);
  for (const std::string& word : words) {
    char* end = nullptr;
    const int64_t rank = std::strtoll(word.c_str(), &end, 10);
    const bool equals = end != word.c_str() && *end == '=';
    const char* number = equals ? end + 1 : word.c_str();
    const double factor = std::strtod(number, &end);
    if (!equals || end == number || *end != '\0' || rank < 0 || rank >= static_cast<int64_t>(ranks) || !(factor > 0)) {
      refuse(str(flag, " ", word, ": RANK=FACTOR is required, with a rank of 0 to ", ranks - 1,
                 " and a factor above 0, such as 1=1.3."));
    }
    result[rank] = factor;
  }
  return result;
}

/// The costs of one of a rank's `chunks` stages.
plan::StageCost stage_cost(const SimulateCase& wanted, int chunks, double reduce_s) {
  const double forward = wanted.forward_ms * kMilli;
  const double backward = wanted.backward_ms >= 0 ? wanted.backward_ms * kMilli : 2 * forward;
  plan::StageCost cost;
  cost.forward_s = forward / chunks;
  cost.input_s = (wanted.backward_input_ms >= 0 ? wanted.backward_input_ms * kMilli : backward / 2) / chunks;
  cost.weight_s = (wanted.backward_weight_ms >= 0 ? wanted.backward_weight_ms * kMilli : backward / 2) / chunks;
  cost.recompute_s = cost.forward_s;
  cost.activation_bytes = wanted.activations_mb * kMega / chunks;
  cost.checkpoint_bytes = wanted.checkpoint_mb * kMega / chunks;
  cost.static_bytes = wanted.state_gb * kGiga / chunks;
  cost.reduce_s = reduce_s;
  cost.optimizer_s = wanted.optimizer_ms * kMilli / chunks;
  return cost;
}

double reduce_seconds(const SimulateCase& wanted, double bytes) {
  plan::Fabric fabric;
  fabric.domain_ranks = wanted.domain;
  fabric.link_bytes_per_s = wanted.domain_link_gb_s * kGiga;
  fabric.nic_bytes_per_s = wanted.nic_gb_s * kGiga;
  fabric.nic_latency_s = wanted.nic_latency_us * kMicro;
  fabric.spine_share = wanted.spine_share;
  return plan::collective_seconds(plan::Collective::kAllReduce, plan::topology_from(wanted.topology), wanted.replicas,
                                  bytes, fabric);
}

/// A model on a cluster: schedule and costs follow from the plan.
SimulatedCase run_model(const SimulateCase& wanted, std::string name) {
  const PlanInputs inputs = read_plan_inputs(wanted.training);
  if (is_file(wanted.schedule)) refuse("--schedule FILE and --model: a plan runs a schedule by its name. Name one.");
  SimulatedCase result;
  result.name = std::move(name);
  result.virtual_stages =
      wanted.virtual_stages > 0 ? wanted.virtual_stages : plan::default_virtual_stages(wanted.schedule);
  plan::Plan plan;
  plan.pp = wanted.stages;
  plan.tp = wanted.tensor_parallel;
  plan.virtual_stages = result.virtual_stages;
  plan.schedule = wanted.schedule;
  plan.micro_batch = wanted.micro_batch;
  plan.zero_stage = wanted.zero_stage;
  plan.recompute = wanted.recompute ? plan::Recompute::kFull : plan::Recompute::kNone;
  plan.sequence_parallel = inputs.machine.software.sequence_parallel && plan.tp > 1;
  if (plan.pp < 1 || plan.tp < 1 || inputs.devices % (plan.pp * plan.tp) != 0) {
    refuse(str("--stages ", plan.pp, " x --tensor-parallel ", plan.tp, " must divide the ", inputs.devices,
               " devices of --cluster ", wanted.training.cluster, "."));
  }
  if (wanted.zero_stage < 0 || wanted.zero_stage > 3)
    refuse(str("--zero ", wanted.zero_stage, ": 0 to 3 are required."));
  plan.dp = inputs.devices / (plan.pp * plan.tp);
  Result<plan::PlanSimulation> simulated = plan::simulate_plan(inputs.model, inputs.machine, inputs.training, plan);
  if (!simulated.ok()) refuse(simulated.reason());
  plan::PlanSimulation& value = simulated.value();
  result.schedule = std::move(value.schedule);
  result.options = std::move(value.options);
  result.step = std::move(value.step);
  result.replicas = plan.dp;
  result.model = str(describe(inputs), "; dp ", plan.dp, " x tp ", plan.tp, " x pp ", plan.pp);
  result.closed_form_ms = value.estimate.step_seconds / kMilli;
  result.limit_bytes = inputs.machine.device.memory_bytes.value;
  result.reduce_ms = result.options.stages.front().reduce_s * result.virtual_stages / kMilli;
  const bool changed =
      !wanted.slow_ranks.empty() || !wanted.slow_links.empty() || wanted.blocking || wanted.model_link_gb_s > 0;
  if (!changed) return result;
  result.options.blocking = wanted.blocking;
  if (wanted.model_link_gb_s > 0) result.options.link.bytes_per_s = wanted.model_link_gb_s * kGiga;
  result.options.rank_slowdown = factors("--slow-rank", wanted.slow_ranks, result.schedule.size());
  result.options.link_slowdown = factors("--slow-link", wanted.slow_links, result.schedule.size());
  result.step = plan::simulate(result.schedule, {}, result.options);
  return result;
}

}  // namespace

SimulatedCase run_case(const SimulateCase& wanted, std::string name) {
  if (!wanted.training.model.empty()) return run_model(wanted, std::move(name));
  SimulatedCase result;
  result.name = std::move(name);
  result.replicas = wanted.replicas;
  if (is_file(wanted.schedule)) {
    result.schedule = read_schedule(wanted.schedule);
  } else {
    plan::ScheduleOptions options;
    options.ranks = wanted.stages;
    options.virtual_stages =
        wanted.virtual_stages > 0 ? wanted.virtual_stages : plan::default_virtual_stages(wanted.schedule);
    options.microbatches = wanted.micro_batches;
    options.forward_only = wanted.forward_only;
    options.recompute = wanted.recompute;
    options.reduce_grads = !wanted.forward_only && wanted.replicas > 1 && wanted.gradients_mb > 0;
    options.optimizer_step = wanted.optimizer_ms > 0;
    result.schedule = plan::make_schedule(wanted.schedule, options);
  }
  const Result<plan::ScheduleStats> stats = plan::check_schedule(result.schedule);
  if (!stats.ok()) refuse(stats.reason());
  const size_t ranks = result.schedule.size();
  const int stages = stats.value().stages;
  result.virtual_stages = std::max(1, stages / static_cast<int>(ranks));
  const double bytes = wanted.gradients_mb * kMega;
  result.reduce_ms = reduce_seconds(wanted, bytes) / kMilli;
  plan::SimulateOptions& options = result.options;
  options.stages = {stage_cost(wanted, result.virtual_stages, reduce_seconds(wanted, bytes / result.virtual_stages))};
  if (!wanted.stage_factors.empty()) {
    if (wanted.stage_factors.size() != static_cast<size_t>(stages)) {
      refuse(str("--stage-factors has ", wanted.stage_factors.size(), " numbers; one for each of ", stages,
                 " stages is required."));
    }
    const plan::StageCost even = options.stages.front();
    options.stages.clear();
    for (const double factor : wanted.stage_factors) {
      plan::StageCost cost = even;
      for (double* time : {&cost.forward_s, &cost.input_s, &cost.weight_s, &cost.recompute_s}) *time *= factor;
      options.stages.push_back(cost);
    }
  }
  options.edge_bytes = {wanted.message_mb * kMega};
  options.link = {wanted.message_mb > 0 ? wanted.link_latency_us * kMicro : 0, wanted.link_gb_s * kGiga};
  options.blocking = wanted.blocking;
  options.rank_slowdown = factors("--slow-rank", wanted.slow_ranks, ranks);
  options.link_slowdown = factors("--slow-link", wanted.slow_links, ranks);
  result.step = plan::simulate(result.schedule, {}, options);
  return result;
}

}  // namespace trireme::cli
