// Pipeline schedules as data: for every rank of a pipeline the list of what it does in one step, in order. No times, no LibTorch.
//
// GPipe, 1F1B, interleaved and zero-bubble schedules and users' files are all generators or readers of this list; check_schedule()
// proves that it can run; the runtime executes it; the simulator costs it. There is no second copy of any schedule.
//
// Words: a *stage* is a part of the model, numbered along the forward pass; a *rank* holds one stage or several (then called its chunks);
// p ranks, v stages on each, m micro-batches. F forward, B backward of the input, W backward of the weights, as in the papers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"

namespace trireme::plan {

enum class ActionKind {
  kForward,
  kBackwardInput,  ///< gradient of the stage's input
  kBackwardWeight,  ///< gradient of its weights; at once after kBackwardInput of the same micro-batch, both run as one backward
  kRecompute,       ///< the forward once more, before the backward: its activations were not kept
  kSendActivation,  ///< along one edge of the stage graph, forward
  kRecvActivation,
  kSendGradient,  ///< along one edge, backward
  kRecvGradient,
  kOffload,  ///< activations of one micro-batch to another memory
  kPrefetch,
  kGatherParams,   ///< weights of a stage that data-parallel ranks hold in shards
  kReleaseParams,  ///< drops the gathered copy
  kReduceGrads,    ///< gradients of a stage over the data-parallel ranks
  kReduceTied,     ///< gradients of weights that `stage` shares with `peer_stage`
  kOptimizerStep,
};

/// What one rank does at one position.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;        ///< which part of the model; a rank may hold several
  int microbatch = 0;   ///< 0 where a kind has none (kGatherParams and everything after it)
  int edge = -1;        ///< sends and receives only: which edge of the stage graph
  int peer_stage = -1;  ///< sends, receives and kReduceTied only: the other end
  int batch = -1;       ///< actions next to each other on one rank with one number >= 0 start together
  friend bool operator==(const Action&, const Action&) = default;
};

/// [pipeline rank][position]; a schedule without any backward is an evaluation pass.
using Schedule = std::vector<std::vector<Action>>;

/// A tensor that one stage makes and another one reads; its gradient goes the other way.
struct StageEdge {
  int from = 0;
  int to = 0;
  friend bool operator==(const StageEdge&, const StageEdge&) = default;
};

/// Edge i from stage i to stage i + 1: what a model without skip connections over stages has.
[[nodiscard]] std::vector<StageEdge> chain_edges(int stages);

/// What a schedule must be right for.
struct ScheduleRules {
  int stages = 0;                ///< 0 = as many as the schedule names
  int microbatches = 0;          ///< 0 = as many as the schedule names
  std::vector<StageEdge> edges;  ///< empty = chain_edges(stages)
  std::vector<int>
      stage_bounds;  ///< by stage: micro-batches whose activations may lie in memory at once; empty = any number
  std::vector<int> rank_bounds;  ///< by rank: the same, summed over its stages; empty = any number
};

/// What check_schedule() learnt.
struct ScheduleStats {
  int ranks = 0;
  int stages = 0;
  int microbatches = 0;
  bool forward_only = false;
  std::vector<int> rank_of_stage;
  std::vector<int>
      stage_peak;  ///< by stage: most micro-batches whose activations lie in memory at once (F until W, less offloaded)
  std::vector<int> rank_peak;  ///< by rank: the same, summed over its stages
  int64_t actions = 0;
  int64_t messages = 0;
};

/// Proves that a schedule can run: every stage on one rank; forward, and unless it is an evaluation pass both backwards, once for every
/// stage and micro-batch, each after what it reads; every send with its receive, between two ranks in the order in which they are sent
/// (so that transports without tags match them too); completion with zero-size buffers, where a send ends only once its receive has
/// started; memory in bounds; gathers, reductions and the optimizer step after what they need. [local]
///
/// Cost     linear in the number of actions, about 90 ns each.
/// Errors   as a reason: `[plan.check_schedule] rank r, position i, 2SEND_F0: ...`, the first that is found.
[[nodiscard]] Result<ScheduleStats> check_schedule(const Schedule& schedule, const ScheduleRules& rules = {});

/// What a generator is asked for.
struct ScheduleOptions {
  int ranks = 1;                ///< p
  int virtual_stages = 1;       ///< v: stages on each rank
  int microbatches = 1;         ///< m
  bool forward_only = false;    ///< evaluation
  bool recompute = false;       ///< kRecompute before every backward
  bool reduce_grads = false;    ///< kReduceGrads of a stage after its last backward
  bool optimizer_step = false;  ///< kOptimizerStep at the end of every rank
};

/// "gpipe" (with v > 1 stage by stage: looped, breadth first), "1f1b", "interleaved", "zb1p", "zb2p", "zbv".
[[nodiscard]] std::vector<std::string> schedule_names();

/// v where nobody names one: 2 for interleaved and zbv, else 1. Errors: kInvalidArgument for an unknown name.
[[nodiscard]] int default_virtual_stages(std::string_view name);

/// The full list with all messages, of one of schedule_names() or its name in torch.distributed.pipelining ("Interleaved1F1B", any case).
///
/// GPipe (arXiv:1811.06965); 1F1B (PipeDream-flush, arXiv:2006.09503); interleaved (arXiv:2104.04473; m need not be a multiple of p: the
/// rounds then differ by one micro-batch); zb1p and zb2p are ZB-H1 and ZB-H2, zbv is ZB-V (arXiv:2401.10241; v is 2 there).
/// All run backwards in the order of the micro-batches, so that gradients add up in the same order.
/// docs/planner.md gives bubble and memory of each.
///
/// Errors   kInvalidArgument: an unknown name; sizes below 1; v that the schedule cannot have.
[[nodiscard]] Schedule make_schedule(std::string_view name, const ScheduleOptions& options);

/// The same without sends and receives.
[[nodiscard]] Schedule make_compute_schedule(std::string_view name, const ScheduleOptions& options);

/// Adds the sends and receives that a schedule without any needs: a send right after what makes its data (after the whole backward where
/// kBackwardWeight follows at once, unless `split_backward`), its receive where the other rank then is when F, B and W take equal time.
/// Sends and receives so come in one order over all ranks, and cannot deadlock.
///
/// Errors   kInvalidArgument: there are messages already; a stage on two ranks; dependencies that no order satisfies.
[[nodiscard]] Schedule add_communication(const Schedule& compute, bool split_backward,
                                         const std::vector<StageEdge>& edges = {});

/// A schedule file, and what its notation said beside the list.
struct ScheduleFile {
  Schedule schedule;
  bool has_communication = false;
  bool splits_backward =
      false;  ///< "I" and "W" were used: they were meant to be apart even where they stand next to each other
};

/// Reads the CSV notation of torch.distributed.pipelining, both "compute_only" and "compute_comms": one line per rank, cells such as 0F1
/// (stage, kind, micro-batch), empty cells for idle slots; kinds F, I, W, B (= I then W), SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD,
/// REDUCE_GRAD and `(0F2;3B0)OVERLAP_F_B`. Ours beside them: RECOMPUTE, OFFLOAD, PREFETCH, REDUCE_TIED (its number is the other stage),
/// OPTIMIZER, `(...)BATCH`, and `#E>P` behind a message that is not of the chain (edge E, other stage P).
///
/// Errors   kConfig with `file:line`, the cell and its number.
[[nodiscard]] ScheduleFile read_schedule_csv(std::string_view text, std::string_view file);

/// The other way; kBackwardInput with kBackwardWeight at once after it becomes B. Reads back as the same list, batches numbered from 0.
///
/// Errors   kUnsupported: `torch_only` is set, and the list holds what torch's notation lacks.
[[nodiscard]] std::string write_schedule_csv(const Schedule& schedule, bool torch_only = false);

/// "2SEND_F0": an action in that notation.
[[nodiscard]] std::string action_text(const Action& action);

/// What a kind works on.
[[nodiscard]] constexpr bool is_compute(ActionKind kind) { return kind <= ActionKind::kRecompute; }
[[nodiscard]] constexpr bool is_message(ActionKind kind) {
  return kind >= ActionKind::kSendActivation && kind <= ActionKind::kRecvGradient;
}
[[nodiscard]] constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}
[[nodiscard]] constexpr bool has_microbatch(ActionKind kind) { return kind <= ActionKind::kPrefetch; }

}  // namespace trireme::plan
