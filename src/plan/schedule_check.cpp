// check_schedule(): where stages are, and what one rank's list must satisfy by itself. schedule_messages.cpp has what lies between ranks.
#include "plan/schedule_check.h"

#include <algorithm>
#include <set>

#include "base/str.h"
#include "plan/schedule_text.h"

namespace trireme::plan {
namespace {

/// Fills `shape.edges`, `out` and `in`.
std::optional<std::string> find_edges(const ScheduleRules& rules, ScheduleShape& shape) {
  shape.edges = rules.edges.empty() ? chain_edges(shape.stages) : rules.edges;
  shape.out.resize(shape.stages);
  shape.in.resize(shape.stages);
  for (size_t i = 0; i < shape.edges.size(); ++i) {
    const StageEdge edge = shape.edges[i];
    if (edge.from < 0 || edge.to <= edge.from || edge.to >= shape.stages) {
      return str("[plan.check_schedule] edge ", i, " leads from stage ", edge.from, " to stage ", edge.to,
                 "; an edge must lead to a later stage of ", shape.stages, ".");
    }
    shape.out[edge.from].push_back(static_cast<int>(i));
    shape.in[edge.to].push_back(static_cast<int>(i));
  }
  return std::nullopt;
}

/// The fault of what one action says, whatever stands around it; empty when there is none.
std::string action_fault(const Action& action, int rank, const ScheduleShape& shape) {
  if (action.stage < 0 || action.stage >= shape.stages) {
    return str("there is no stage ", action.stage, "; stages are 0 to ", shape.stages - 1, ".");
  }
  if (shape.rank_of_stage[action.stage] != rank) {
    return str("stage ", action.stage, " is on rank ", shape.rank_of_stage[action.stage],
               "; everything of one stage must be on one rank.");
  }
  if (has_microbatch(action.kind) && (action.microbatch < 0 || action.microbatch >= shape.microbatches)) {
    return str("there is no micro-batch ", action.microbatch, "; they are 0 to ", shape.microbatches - 1, ".");
  }
  if (action.kind == ActionKind::kReduceTied &&
      (action.peer_stage < 0 || action.peer_stage >= shape.stages || action.peer_stage == action.stage)) {
    return str("stage ", action.peer_stage, " cannot share weights with it; another stage is required.");
  }
  if (!is_message(action.kind)) return {};
  if (action.edge < 0 || action.edge >= static_cast<int>(shape.edges.size())) {
    return str("there is no edge ", action.edge, "; edges are 0 to ", static_cast<int>(shape.edges.size()) - 1, ".");
  }
  const StageEdge edge = shape.edges[action.edge];
  const bool at_from = action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kRecvGradient;
  const int here = at_from ? edge.from : edge.to;
  const int there = at_from ? edge.to : edge.from;
  if (action.stage != here || action.peer_stage != there) {
    return str("it runs from stage ", action.stage, " to or from stage ", action.peer_stage, ", but edge ", action.edge,
               " has stage ", here, " at this end and stage ", there, " at the other; they must agree.");
  }
  if (shape.rank_of_stage[there] == rank) {
    return str("stages ", here, " and ", there, " are both on this rank; remove the message.");
  }
  return {};
}

/// Walks through one rank's list. Everything that an action needs must be there before its batch starts.
class RankWalk {
 public:
  RankWalk(const Schedule& schedule, int rank, const ScheduleRules& rules, const ScheduleShape& shape,
           MessageFlags& flags, ScheduleStats& stats)
      : schedule_(schedule),
        list_(schedule[rank]),
        rank_(rank),
        rules_(rules),
        shape_(shape),
        flags_(flags),
        stats_(stats) {
    slots_.resize(shape.stages, -1);
    for (int stage = 0; stage < shape.stages; ++stage) {
      if (shape.rank_of_stage[stage] == rank) slots_[stage] = num_slots_++;
    }
    cells_.resize(static_cast<size_t>(num_slots_) * shape.microbatches);
    stages_.resize(num_slots_);
  }

  std::optional<std::string> run() {
    for (const Action& action : list_) {
      if (action.kind == ActionKind::kRecompute) cell(action).recomputed_later = true;
      if (action.kind == ActionKind::kGatherParams) stage(action).sharded = true;
    }
    for (size_t begin = 0; begin < list_.size();) {
      const size_t end = batch_end(list_, begin);
      if (auto fault = check_batch(begin, end)) return fault;
      for (size_t i = begin; i < end; ++i) {
        if (auto fault = apply(i)) return fault;
      }
      begin = end;
    }
    return check_complete();
  }

 private:
  struct Cell {
    bool forward = false, input = false, weight = false;
    bool recomputed_later = false, recomputed = false;
    bool resident = false, offloaded = false;
  };
  struct StageState {
    bool sharded = false, gathered = false, reduced = false;
    int weights = 0;
    int resident = 0;
    std::set<int> tied;
  };

  Cell& cell(const Action& action) {
    return cells_[static_cast<size_t>(slots_[action.stage]) * shape_.microbatches + action.microbatch];
  }
  StageState& stage(const Action& action) { return stages_[slots_[action.stage]]; }

  [[nodiscard]] std::string fault(size_t position, const std::string& what) const {
    return fault_text(schedule_, {rank_, static_cast<int>(position)}, what);
  }

  std::optional<std::string> check_batch(size_t begin, size_t end) {
    const int batch = list_[begin].batch;
    if (batch >= 0 && !batches_.insert(batch).second) {
      return fault(begin, str("batch ", batch, " stood further up already; its actions must be next to each other."));
    }
    for (size_t i = begin; i < end; ++i) {
      const Action& action = list_[i];
      if (batch >= 0 && !(is_compute(action.kind) && is_compute(list_[begin].kind)) &&
          !(is_message(action.kind) && is_message(list_[begin].kind))) {
        return fault(i, str("it cannot be in batch ", batch, "; a batch holds computation only, or messages only."));
      }
      const std::string what = need(i, begin);
      if (!what.empty()) return fault(i, what);
    }
    return std::nullopt;
  }

  /// What is missing for the action at `i` of the batch that begins at `begin`; empty when nothing is.
  std::string need(size_t i, size_t begin) {
    const Action& action = list_[i];
    if (optimizer_done_ && !is_message(action.kind) && action.kind != ActionKind::kReleaseParams) {
      return "it comes after the optimizer step; only messages and releases may.";
    }
    switch (action.kind) {
      case ActionKind::kForward:
      case ActionKind::kRecompute:
      case ActionKind::kBackwardInput:
      case ActionKind::kBackwardWeight:
        return compute_need(i, begin);
      case ActionKind::kSendActivation:
        return cell(action).forward ? "" : "the forward that makes it has not run; it must come first.";
      case ActionKind::kSendGradient:
        return cell(action).input ? "" : "the backward that makes it has not run; it must come first.";
      case ActionKind::kRecvActivation:
      case ActionKind::kRecvGradient:
        return "";
      case ActionKind::kOffload:
        return cell(action).resident && !cell(action).input
                   ? ""
                   : "no activations are there to go; it must come between forward and backward, once.";
      case ActionKind::kPrefetch:
        return cell(action).offloaded ? "" : "nothing was offloaded; kOffload must come first.";
      default:
        return stage_need(action);
    }
  }

  std::string compute_need(size_t i, size_t begin) {
    const Action& action = list_[i];
    const Cell& here = cell(action);
    if (stage(action).sharded && !stage(action).gathered)
      return "the stage's weights are not gathered; UNSHARD must come first.";
    switch (action.kind) {
      case ActionKind::kForward:
        return here.forward ? "it ran already; once is required." : missing_input(action);
      case ActionKind::kRecompute:
        if (!here.forward) return "its forward has not run; it must come first.";
        if (here.recomputed || here.input) return "it comes twice, or after the backward; once before it is required.";
        return shape_.forward_only ? "there is no backward that needs it." : "";
      case ActionKind::kBackwardInput:
        if (here.input) return "it ran already; once is required.";
        if (!here.forward) return "its forward has not run; it must come first.";
        if (!here.resident) return "its activations are offloaded or not yet recomputed; bring them back first.";
        return missing_gradient(action);
      default:
        if (here.weight) return "it ran already; once is required.";
        if (here.input) return "";
        // A whole backward in a batch: the weights' part follows its own input's part.
        for (size_t k = begin; k < i; ++k) {
          if (list_[k].kind == ActionKind::kBackwardInput && list_[k].stage == action.stage &&
              list_[k].microbatch == action.microbatch) {
            return "";
          }
        }
        return "the backward of its input has not run; it must come first.";
    }
  }

  /// Stages that make what a forward reads: on this rank they must have run, from another it must have been received.
  std::string missing_input(const Action& action) {
    for (const int edge : shape_.in[action.stage]) {
      const int from = shape_.edges[edge].from;
      const bool local = shape_.rank_of_stage[from] == rank_;
      const Action recv{ActionKind::kRecvActivation, action.stage, action.microbatch, edge, from};
      if (local ? !cell({ActionKind::kForward, from, action.microbatch}).forward
                : flags_.received[shape_.message(recv)] == 0) {
        return local ? str("stage ", from, " has not run on it; it must come first.")
                     : str("its input from stage ", from, " is not there; ", action_text(recv), " must come first.");
      }
    }
    return "";
  }

  std::string missing_gradient(const Action& action) {
    for (const int edge : shape_.out[action.stage]) {
      const int to = shape_.edges[edge].to;
      const bool local = shape_.rank_of_stage[to] == rank_;
      const Action recv{ActionKind::kRecvGradient, action.stage, action.microbatch, edge, to};
      if (local ? !cell({ActionKind::kBackwardInput, to, action.microbatch}).input
                : flags_.received[shape_.message(recv)] == 0) {
        return local ? str("the backward of stage ", to, " has not run; it must come first.")
                     : str("the gradient from stage ", to, " is not there; ", action_text(recv), " must come first.");
      }
    }
    return "";
  }

  std::string stage_need(const Action& action) {
    StageState& here = stage(action);
    switch (action.kind) {
      case ActionKind::kGatherParams:
        return here.gathered ? "the weights are gathered already; release them in between." : "";
      case ActionKind::kReleaseParams:
        return here.gathered ? "" : "the weights are not gathered.";
      case ActionKind::kReduceGrads:
        if (here.reduced) return "the stage's gradients were reduced already; once is required.";
        return here.weights == shape_.microbatches
                   ? ""
                   : "backwards of the stage are still to come; it must follow the last.";
      case ActionKind::kReduceTied: {
        if (here.tied.count(action.peer_stage) != 0) return "it came already; once is required.";
        const int other = slots_[action.peer_stage];
        const bool ready =
            here.weights == shape_.microbatches && (other < 0 || stages_[other].weights == shape_.microbatches);
        return ready ? "" : "backwards of the stage are still to come; it must follow the last.";
      }
      default:  // kOptimizerStep
        for (const StageState& any : stages_) {
          if (any.weights != shape_.microbatches) return "backwards are still to come; it must follow the last.";
        }
        return "";
    }
  }

  std::optional<std::string> apply(size_t i) {
    const Action& action = list_[i];
    switch (action.kind) {
      case ActionKind::kForward:
        if (cell(action).forward) return fault(i, "it comes twice in its batch.");
        cell(action).forward = true;
        return shape_.forward_only || cell(action).recomputed_later ? std::nullopt : keep(i);
      case ActionKind::kRecompute:
        if (cell(action).recomputed) return fault(i, "it comes twice in its batch.");
        cell(action).recomputed = true;
        return keep(i);
      case ActionKind::kBackwardInput:
        if (cell(action).input) return fault(i, "it comes twice in its batch.");
        cell(action).input = true;
        return std::nullopt;
      case ActionKind::kBackwardWeight:
        if (cell(action).weight) return fault(i, "it comes twice in its batch.");
        cell(action).weight = true;
        ++stage(action).weights;
        drop(action);
        return std::nullopt;
      case ActionKind::kSendActivation:
      case ActionKind::kSendGradient:
        if (flags_.sent[shape_.message(action)]++ != 0) return fault(i, "it was sent already; once is required.");
        return std::nullopt;
      case ActionKind::kRecvActivation:
      case ActionKind::kRecvGradient:
        if (flags_.received[shape_.message(action)]++ != 0)
          return fault(i, "it was received already; once is required.");
        return std::nullopt;
      case ActionKind::kOffload:
        cell(action).offloaded = true;
        drop(action);
        return std::nullopt;
      case ActionKind::kPrefetch:
        cell(action).offloaded = false;
        return keep(i);
      case ActionKind::kGatherParams:
      case ActionKind::kReleaseParams:
        stage(action).gathered = action.kind == ActionKind::kGatherParams;
        return std::nullopt;
      case ActionKind::kReduceGrads:
        stage(action).reduced = true;
        return std::nullopt;
      case ActionKind::kReduceTied:
        stage(action).tied.insert(action.peer_stage);
        return std::nullopt;
      case ActionKind::kOptimizerStep:
        optimizer_done_ = true;
        return std::nullopt;
    }
    return std::nullopt;
  }

  /// Activations of one more micro-batch lie in memory.
  std::optional<std::string> keep(size_t i) {
    const Action& action = list_[i];
    cell(action).resident = true;
    const int on_stage = ++stage(action).resident;
    ++resident_;
    stats_.stage_peak[action.stage] = std::max(stats_.stage_peak[action.stage], on_stage);
    stats_.rank_peak[rank_] = std::max(stats_.rank_peak[rank_], resident_);
    if (!rules_.stage_bounds.empty() && on_stage > rules_.stage_bounds[action.stage]) {
      return fault(i, str("activations of ", on_stage, " micro-batches of stage ", action.stage,
                          " lie in memory; at most ", rules_.stage_bounds[action.stage], " are allowed."));
    }
    if (!rules_.rank_bounds.empty() && resident_ > rules_.rank_bounds[rank_]) {
      return fault(i, str("activations of ", resident_, " micro-batches lie in this rank's memory; at most ",
                          rules_.rank_bounds[rank_], " are allowed."));
    }
    return std::nullopt;
  }

  void drop(const Action& action) {
    if (!cell(action).resident) return;
    cell(action).resident = false;
    --stage(action).resident;
    --resident_;
  }

  std::optional<std::string> check_complete() {
    for (int s = 0; s < shape_.stages; ++s) {
      if (slots_[s] < 0) continue;
      for (int m = 0; m < shape_.microbatches; ++m) {
        const Cell& here = cell({ActionKind::kForward, s, m});
        if (here.forward && (shape_.forward_only || here.weight)) continue;
        const ActionKind lacks = !here.forward ? ActionKind::kForward
                                 : here.input  ? ActionKind::kBackwardWeight
                                               : ActionKind::kBackwardInput;
        return str("[plan.check_schedule] rank ", rank_, ": ", action_text({lacks, s, m}),
                   " is missing; every stage must run every micro-batch.");
      }
    }
    return std::nullopt;
  }

  const Schedule& schedule_;
  const std::vector<Action>& list_;
  const int rank_;
  const ScheduleRules& rules_;
  const ScheduleShape& shape_;
  MessageFlags& flags_;
  ScheduleStats& stats_;
  std::vector<int> slots_;  // by stage: its number on this rank, or -1
  int num_slots_ = 0;
  int resident_ = 0;
  bool optimizer_done_ = false;
  std::vector<Cell> cells_;
  std::vector<StageState> stages_;
  std::set<int> batches_;
};

}  // namespace

std::string fault_text(const Schedule& schedule, Place place, const std::string& what) {
  return str("[plan.check_schedule] ", position_text(schedule, place.rank, place.position), ": ", what);
}

size_t batch_end(const std::vector<Action>& list, size_t position) {
  size_t end = position + 1;
  while (list[position].batch >= 0 && end < list.size() && list[end].batch == list[position].batch) ++end;
  return end;
}

std::optional<std::string> find_shape(const Schedule& schedule, const ScheduleRules& rules, ScheduleShape& shape) {
  shape.stages = rules.stages;
  shape.microbatches = rules.microbatches;
  shape.forward_only = true;
  int64_t named = 0;
  int64_t last_microbatch = -1;
  int64_t actions = 0;
  for (const std::vector<Action>& list : schedule) {
    actions += static_cast<int64_t>(list.size());
    for (const Action& action : list) {
      named = std::max<int64_t>(named, int64_t{action.stage} + 1);
      if (has_microbatch(action.kind)) last_microbatch = std::max<int64_t>(last_microbatch, action.microbatch);
      shape.forward_only &= action.kind != ActionKind::kBackwardInput && action.kind != ActionKind::kBackwardWeight;
    }
  }
  const int64_t stages = shape.stages == 0 ? named : shape.stages;
  const int64_t microbatches = shape.microbatches == 0 ? last_microbatch + 1 : shape.microbatches;
  if (stages * microbatches > actions) {
    return str("[plan.check_schedule] ", stages, " stages on ", microbatches, " micro-batches need at least ",
               stages * microbatches, " actions; there are ", actions, ".");
  }
  shape.stages = static_cast<int>(stages);
  shape.microbatches = static_cast<int>(microbatches);
  if (shape.stages < 1 || shape.microbatches < 1) {
    return str("[plan.check_schedule] ", schedule.size(), " ranks run ", shape.stages, " stages on ",
               shape.microbatches, " micro-batches; at least one of each is required.");
  }
  if (auto fault = find_edges(rules, shape)) return fault;
  shape.rank_of_stage.assign(shape.stages, -1);
  for (int rank = 0; rank < static_cast<int>(schedule.size()); ++rank) {
    for (const Action& action : schedule[rank]) {
      if (action.kind == ActionKind::kForward && action.stage >= 0 && action.stage < shape.stages &&
          shape.rank_of_stage[action.stage] < 0) {
        shape.rank_of_stage[action.stage] = rank;
      }
    }
  }
  for (int stage = 0; stage < shape.stages; ++stage) {
    if (shape.rank_of_stage[stage] < 0) {
      return str("[plan.check_schedule] stage ", stage, " has no forward on any of ", schedule.size(),
                 " ranks; every stage of ", shape.stages, " must run.");
    }
  }
  for (int rank = 0; rank < static_cast<int>(schedule.size()); ++rank) {
    for (size_t i = 0; i < schedule[rank].size(); ++i) {
      const std::string what = action_fault(schedule[rank][i], rank, shape);
      if (!what.empty()) return fault_text(schedule, {rank, static_cast<int>(i)}, what);
    }
  }
  return std::nullopt;
}

std::optional<std::string> check_rank(const Schedule& schedule, int rank, const ScheduleRules& rules,
                                      const ScheduleShape& shape, MessageFlags& flags, ScheduleStats& stats) {
  return RankWalk(schedule, rank, rules, shape, flags, stats).run();
}

Result<ScheduleStats> check_schedule(const Schedule& schedule, const ScheduleRules& rules) {
  ScheduleShape shape;
  if (auto fault = find_shape(schedule, rules, shape)) return Reason{*fault};
  if ((!rules.stage_bounds.empty() && rules.stage_bounds.size() != static_cast<size_t>(shape.stages)) ||
      (!rules.rank_bounds.empty() && rules.rank_bounds.size() != schedule.size())) {
    return Reason{str("[plan.check_schedule] bounds for ", rules.stage_bounds.size(), " stages and ",
                      rules.rank_bounds.size(), " ranks; one for each of ", shape.stages, " stages or ",
                      schedule.size(), " ranks is required, or none.")};
  }
  ScheduleStats stats;
  stats.ranks = static_cast<int>(schedule.size());
  stats.stages = shape.stages;
  stats.microbatches = shape.microbatches;
  stats.forward_only = shape.forward_only;
  stats.rank_of_stage = shape.rank_of_stage;
  stats.stage_peak.resize(shape.stages);
  stats.rank_peak.resize(schedule.size());
  MessageFlags flags{std::vector<uint8_t>(shape.num_messages()), std::vector<uint8_t>(shape.num_messages())};
  for (int rank = 0; rank < stats.ranks; ++rank) {
    stats.actions += static_cast<int64_t>(schedule[rank].size());
    if (auto fault = check_rank(schedule, rank, rules, shape, flags, stats)) return Reason{*fault};
  }
  if (auto fault = check_messages(schedule, shape, stats)) return Reason{*fault};
  return stats;
}

}  // namespace trireme::plan
