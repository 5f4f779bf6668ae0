// From a plan to the schedule that it runs and what each action costs.
#include "plan/numbers.h"
#include "trireme/plan/simulate.h"

namespace trireme::plan {

Result<PlanSimulation> simulate_plan(const ModelDesc& model, const Machine& machine, const Training& training,
                                     const Plan& plan) {
  PlanSimulation result;
  Result<Estimate> estimated = estimate(model, machine, training, plan);
  if (!estimated.ok()) return Reason{estimated.reason()};
  result.estimate = std::move(estimated).value();

  const ModelNumbers mn = numbers_of(model);
  const MachineNumbers hw = numbers_of(machine, training);
  const TrainingNumbers tn = numbers_of(training);
  PipelineDetail detail;
  const TimeParts time = step_time(mn, hw, tn, plan, &detail);
  const auto micro_steps = static_cast<int>(training.global_batch / (plan.micro_batch * plan.dp));
  const auto chunks = static_cast<double>(plan.virtual_stages);
  // One micro-step alone says what one keeps.
  TrainingNumbers alone = tn;
  alone.global_batch = static_cast<double>(plan.micro_batch * plan.dp);

  std::vector<StageCost> of_rank;
  for (int rank = 0; rank < static_cast<int>(plan.pp); ++rank) {
    const StageSeconds& seconds = detail.stages[rank];
    const MemoryParts memory = stage_memory(mn, hw, tn, plan, rank);
    StageCost cost;
    cost.forward_s = seconds.forward.value / chunks;
    cost.input_s = seconds.input.value / chunks;
    cost.weight_s = seconds.weight.value / chunks;
    cost.recompute_s = seconds.recompute.value / chunks;
    cost.activation_bytes = stage_memory(mn, hw, alone, plan, rank).activations.value / chunks;
    cost.checkpoint_bytes = cost.activation_bytes;  // what is kept until the backward, recomputed or not
    cost.static_bytes = (memory.total() - memory.activations).value / chunks;
    cost.reduce_s = time.gradients.value / chunks;
    cost.optimizer_s = time.optimizer.value / chunks;
    of_rank.push_back(cost);
  }

  ScheduleOptions options;
  options.ranks = static_cast<int>(plan.pp);
  options.virtual_stages = static_cast<int>(plan.virtual_stages);
  options.microbatches = micro_steps;
  options.recompute = time.recompute.value > 0;
  options.reduce_grads = time.gradients.value > 0;
  options.optimizer_step = time.optimizer.value > 0;
  const bool interleaved = plan.schedule == "1f1b" && plan.virtual_stages > 1;
  result.schedule = make_schedule(interleaved ? "interleaved" : plan.schedule, options);

  ScheduleRules rules;
  rules.stages = options.ranks * options.virtual_stages;
  rules.microbatches = micro_steps;
  const ScheduleStats stats = check_schedule(result.schedule, rules).value();
  for (const int rank : stats.rank_of_stage) result.options.stages.push_back(of_rank[rank]);
  result.options.edge_bytes = {detail.message_bytes.value};
  result.options.link = {detail.message_latency.value, detail.message_rate.value};
  result.step = simulate(result.schedule, rules, result.options);
  return result;
}

}  // namespace trireme::plan
