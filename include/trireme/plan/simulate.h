// What one step of a pipeline schedule costs: exactly the list that the runtime executes, with a duration for every action.
//
// Max-plus evaluation: an action starts when its rank has come to it and all that it needs is there. No random numbers, no sampling; one
// pipeline of one data-parallel replica is simulated, collectives over replicas enter as durations (collective_time.h), so that a cluster
// of any size costs the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/plan/plan.h"
#include "trireme/plan/schedule.h"

namespace trireme::plan {

/// What one micro-batch costs on one stage, and what a stage holds. Times in s, sizes in bytes.
struct StageCost {
  double forward_s = 1;
  double input_s = 1;
  double weight_s = 1;
  double recompute_s = 0;  ///< of kRecompute
  double activation_bytes =
      1;  ///< from the forward (from the recomputation, where there is one) until the weights' backward
  double checkpoint_bytes = 0;  ///< from the forward until the recomputation
  double static_bytes = 0;      ///< weights, gradients, optimizer state: the whole step
  double gather_s = 0;          ///< of kGatherParams
  double gathered_bytes = 0;    ///< between kGatherParams and kReleaseParams
  double reduce_s = 0;          ///< of kReduceGrads
  double tied_s = 0;            ///< of kReduceTied
  double copy_s = 0;            ///< of kOffload and of kPrefetch
  double optimizer_s = 0;       ///< of kOptimizerStep, this stage's part
};

/// The way from one rank to another one: a message takes latency_s + bytes / bytes_per_s, one after the other in each direction.
struct LinkCost {
  double latency_s = 0;
  double bytes_per_s = 0;  ///< 0 = as fast as you like
};

struct SimulateOptions {
  std::vector<StageCost> stages;      ///< one for all, or one for each
  std::vector<double> edge_bytes;     ///< of a message: one for all, one for each edge, or none: 0
  LinkCost link;                      ///< between any two ranks
  std::vector<double> rank_slowdown;  ///< factor on what a rank computes: none, or one for each (1.2 = 20 % slower)
  std::vector<double>
      link_slowdown;  ///< factor on messages between rank r and r + 1 (the last: to rank 0): none, or one for each
  /// A send or receive holds its rank until it is over. Otherwise only what needs the data waits, and a receive is posted when the
  /// computation before it begins.
  bool blocking = false;
};

enum class Lane : uint8_t {
  kCompute,
  kMessage,     ///< sends and receives
  kCollective,  ///< gathers and reductions over replicas
  kCopy,        ///< offload and prefetch
};

/// One action of the list, at its position.
struct SimulatedAction {
  double start_s = 0;
  double end_s = 0;
  Lane lane = Lane::kCompute;
};

/// Where the time of one rank went; the four add up to the step.
struct RankTime {
  double compute_s = 0;
  double exposed_s = 0;  ///< waits for a message or collective that is under way
  double bubble_s = 0;   ///< waits for another rank's computation, from its own first action to its last
  double outside_s =
      0;  ///< before its first and after its last action: no bubble where steps follow each other without a barrier
};

/// Memory of a stage from `at_s` on.
struct MemoryPoint {
  double at_s = 0;
  double bytes = 0;
};

struct SimulatedStep {
  double step_s = 0;
  std::vector<std::vector<SimulatedAction>> actions;  ///< [rank][position], as in the schedule
  std::vector<RankTime> ranks;
  std::vector<std::vector<MemoryPoint>> memory;  ///< by stage
  std::vector<double> stage_peak_bytes;
  std::vector<double> rank_peak_bytes;  ///< all stages of a rank together
  std::vector<int> rank_of_stage;
  double bubble = 0;   ///< share of all ranks' time that is neither computation nor exposed communication
  double exposed = 0;  ///< share that is exposed communication
};

/// Costs a schedule. [local; linear in the number of actions, about 0.2 us each]
///
/// Errors   kInvalidArgument: check_schedule() refuses it (with its reason); a vector of options has another length than allowed; a
///          negative number.
[[nodiscard]] SimulatedStep simulate(const Schedule& schedule, const ScheduleRules& rules,
                                     const SimulateOptions& options);

/// A plan as the schedule that it runs, with the costs that estimate() counts with.
struct PlanSimulation {
  Schedule schedule;
  SimulateOptions options;
  SimulatedStep step;
  Estimate estimate;  ///< closed forms of the same plan
};

/// Simulates one step of a plan. A stage's micro-step is split into forward, input and weights as its products are; recomputation, where the
/// plan has it, comes before the backward. What estimate() says is not hidden of the gradients' reduction follows the last backward.
///
/// Cost     estimate() and simulate(): linear in pp x virtual stages x micro-steps.
/// Errors   as a reason: those of estimate(). kInvalidArgument: those of make_schedule().
[[nodiscard]] Result<PlanSimulation> simulate_plan(const ModelDesc& model, const Machine& machine,
                                                   const Training& training, const Plan& plan);

/// The step by rank in at most `width` characters a line: digits and letters are the forwards of micro-batches (their number modulo 36),
/// '=' backwards of inputs, '-' of weights, '~' recomputation, '*' the optimizer step, ':' nothing but a collective or copy, '.' waiting;
/// then how busy the rank is and its peak of memory. Of more than 40 ranks, 40 evenly spread ones.
[[nodiscard]] std::string timeline_text(const Schedule& schedule, const SimulatedStep& step, int width);

/// A drawing of the same in colour, with messages as thin lines between ranks and memory of each rank below. Self-contained SVG.
[[nodiscard]] std::string timeline_svg(const Schedule& schedule, const SimulatedStep& step, const std::string& title);

/// Chrome trace events (open in Perfetto or chrome://tracing): a process for each rank, a track for each lane, memory as a counter.
[[nodiscard]] std::string timeline_trace(const Schedule& schedule, const SimulatedStep& step);

}  // namespace trireme::plan
