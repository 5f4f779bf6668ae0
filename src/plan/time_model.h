// A step from its micro-steps: stages, schedule, replicas, optimizer.
#pragma once

#include <span>
#include <vector>

#include "plan/layer_time.h"
#include "plan/numbers.h"

namespace trireme::plan {

/// Where a pipeline rank stands: its devices, and what a micro-step costs there.
struct StageMachine {
  const MachineNumbers* hw = nullptr;
  const MicroStepWork* work = nullptr;
};

/// step_time() of a transformer from the work of its micro-steps: `machines` has one entry for all pipeline ranks, or one for each; equal `hw`
/// stand beside each other.
[[nodiscard]] TimeParts pipeline_step_time(const ModelNumbers& model, std::span<const StageMachine> machines,
                                           const TrainingNumbers& training, const Plan& plan,
                                           PipelineDetail* detail = nullptr);

/// No more than pipeline_step_time() says, without going from stage to stage: what is in the layers, embedding and head, and how a pipeline of
/// equal stages fills. All stages on one machine.
[[nodiscard]] Seconds least_step_time(const ModelNumbers& model, const StageMachine& machine,
                                      const TrainingNumbers& training, const Plan& plan);

/// What of one micro-step all layers before layer i take on a machine, i from 0 to the number of layers.
[[nodiscard]] std::vector<Seconds> seconds_before(const ModelNumbers& model, const StageMachine& machine,
                                                  const TrainingNumbers& training, const Plan& plan);

}  // namespace trireme::plan
