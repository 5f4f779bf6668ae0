// Where sends and receives go: the lists run once with F, B and W of one unit each and messages of no time. A send is written into its
// rank's list when its data is made, and at that moment the receive into the other list. All messages so have one order, each list is in
// that order, and a message needs only what was written before it: no choice of buffers can stop them.
#include <algorithm>
#include <queue>

#include "base/str.h"
#include "plan/schedule_text.h"
#include "trireme/base/error.h"
#include "trireme/plan/schedule.h"

namespace trireme::plan {
namespace {

constexpr const char* kWhere = "[plan.add_communication]";

class Lowering {
 public:
  Lowering(const Schedule& compute, bool split_backward, const std::vector<StageEdge>& edges)
      : compute_(compute), split_backward_(split_backward), result_(compute.size()), ranks_(compute.size()) {
    survey();
    check_size();
    edges_ = edges.empty() ? chain_edges(stages_) : edges;
    count_needs();
  }

  Schedule run() {
    for (int rank = 0; rank < static_cast<int>(compute_.size()); ++rank) start(rank);
    while (!running_.empty()) {
      const int64_t now = running_.top().first;
      now_ = now;
      std::vector<int> idle;
      for (; !running_.empty() && running_.top().first == now; running_.pop()) {
        const int rank = running_.top().second;
        finish(rank, idle);
        idle.push_back(rank);
      }
      for (const int rank : idle) start(rank);
    }
    for (int rank = 0; rank < static_cast<int>(compute_.size()); ++rank) {
      const size_t next = ranks_[rank].next;
      if (next == compute_[rank].size()) continue;
      throw Error(ErrorKind::kInvalidArgument,
                  str(kWhere, " ", position_text(compute_, rank, static_cast<int>(next)),
                      ": what it reads is never made before it; a forward needs the stages before it, a backward its "
                      "forward and the stages after it. Reorder the lists."));
    }
    return std::move(result_);
  }

 private:
  struct RankState {
    size_t next = 0;   ///< first action that has not started
    size_t begin = 0;  ///< of the unit that runs
    bool busy = false;
  };

  void survey() {
    int64_t actions = 0;
    for (const std::vector<Action>& list : compute_) actions += static_cast<int64_t>(list.size());
    for (int rank = 0; rank < static_cast<int>(compute_.size()); ++rank) {
      for (size_t i = 0; i < compute_[rank].size(); ++i) {
        const Action& action = compute_[rank][i];
        const auto refuse = [&](const std::string& what) {
          throw Error(ErrorKind::kInvalidArgument,
                      str(kWhere, " ", position_text(compute_, rank, static_cast<int>(i)), ": ", what));
        };
        if (is_message(action.kind))
          refuse("this list has messages already; only lists without any can be given them.");
        if (action.stage < 0 || action.microbatch < 0) refuse("negative stage or micro-batch.");
        if (action.stage >= actions || action.microbatch >= actions) {
          refuse(str("its number is beyond the ", actions, " actions of the whole list, so some are missing."));
        }
        if (!is_compute(action.kind)) continue;
        stages_ = std::max(stages_, action.stage + 1);
        microbatches_ = std::max(microbatches_, action.microbatch + 1);
        rank_of_stage_.resize(stages_, -1);
        if (rank_of_stage_[action.stage] >= 0 && rank_of_stage_[action.stage] != rank) {
          refuse(str("stage ", action.stage, " is on rank ", rank_of_stage_[action.stage],
                     " too; every stage must be on one rank."));
        }
        rank_of_stage_[action.stage] = rank;
      }
    }
  }

  void check_size() const {
    int64_t forwards = 0;
    for (const std::vector<Action>& list : compute_) {
      for (const Action& action : list) forwards += action.kind == ActionKind::kForward ? 1 : 0;
    }
    const int64_t needed = int64_t{stages_} * microbatches_;
    if (forwards >= needed) return;
    throw Error(ErrorKind::kInvalidArgument,
                str(kWhere, " ", stages_, " stages on ", microbatches_, " micro-batches need ", needed,
                    " forwards; there are ", forwards, ". Every stage must run every micro-batch."));
  }

  [[nodiscard]] size_t cell(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * microbatches_ + microbatch;
  }

  void count_needs() {
    out_.resize(stages_);
    in_.resize(stages_);
    for (size_t i = 0; i < edges_.size(); ++i) {
      const StageEdge edge = edges_[i];
      if (edge.from < 0 || edge.to <= edge.from || edge.to >= stages_) {
        throw Error(ErrorKind::kInvalidArgument, str(kWhere, " edge ", i, " from stage ", edge.from, " to ", edge.to,
                                                     "; edges lead to a later stage, of ", stages_, "."));
      }
      out_[edge.from].push_back(static_cast<int>(i));
      in_[edge.to].push_back(static_cast<int>(i));
    }
    forward_needs_.resize(cell(stages_, 0));
    input_needs_.resize(cell(stages_, 0));
    weight_needs_.assign(cell(stages_, 0), 1);
    recompute_needs_.assign(cell(stages_, 0), 1);
    for (int stage = 0; stage < stages_; ++stage) {
      for (int microbatch = 0; microbatch < microbatches_; ++microbatch) {
        forward_needs_[cell(stage, microbatch)] = static_cast<int>(in_[stage].size());
        input_needs_[cell(stage, microbatch)] = static_cast<int>(out_[stage].size()) + 1;
      }
    }
  }

  /// How many actions from `begin` run as one: a whole backward, or those with one batch number.
  [[nodiscard]] size_t unit_size(const std::vector<Action>& list, size_t begin) const {
    const Action& first = list[begin];
    size_t end = begin + 1;
    if (first.batch >= 0) {
      while (end < list.size() && list[end].batch == first.batch) ++end;
    } else if (!split_backward_ && first.kind == ActionKind::kBackwardInput && end < list.size() &&
               list[end].kind == ActionKind::kBackwardWeight && list[end].stage == first.stage &&
               list[end].microbatch == first.microbatch && list[end].batch < 0) {
      ++end;
    }
    return end - begin;
  }

  [[nodiscard]] bool ready(const Action& action) const {
    const size_t at = is_compute(action.kind) ? cell(action.stage, action.microbatch) : 0;
    switch (action.kind) {
      case ActionKind::kForward:
        return forward_needs_[at] == 0;
      case ActionKind::kBackwardInput:
        return input_needs_[at] == 0;
      case ActionKind::kBackwardWeight:
        return weight_needs_[at] == 0;
      case ActionKind::kRecompute:
        return recompute_needs_[at] == 0;
      default:
        return true;
    }
  }

  /// A backward's weights inside the unit of its input need nothing more.
  [[nodiscard]] bool unit_ready(const std::vector<Action>& list, size_t begin, size_t size) const {
    for (size_t i = begin; i < begin + size; ++i) {
      const bool whole = i > begin && list[i].kind == ActionKind::kBackwardWeight &&
                         list[i - 1].kind == ActionKind::kBackwardInput && list[i].stage == list[i - 1].stage &&
                         list[i].microbatch == list[i - 1].microbatch;
      if (!whole && !ready(list[i])) return false;
    }
    return true;
  }

  void start(int rank) {
    RankState& state = ranks_[rank];
    const std::vector<Action>& list = compute_[rank];
    while (!state.busy && state.next < list.size()) {
      const size_t size = unit_size(list, state.next);
      if (!unit_ready(list, state.next, size)) return;
      state.begin = state.next;
      int64_t duration = 0;
      for (; state.next < state.begin + size; ++state.next) {
        result_[rank].push_back(list[state.next]);
        if (is_compute(list[state.next].kind)) ++duration;
      }
      if (duration == 0) continue;
      state.busy = true;
      running_.emplace(now_ + duration, rank);
    }
  }

  void finish(int rank, std::vector<int>& touched) {
    RankState& state = ranks_[rank];
    state.busy = false;
    for (size_t i = state.begin; i < state.next; ++i) {
      const Action& action = compute_[rank][i];
      const size_t at = cell(action.stage, action.microbatch);
      if (action.kind == ActionKind::kForward) {
        --input_needs_[at];
        --recompute_needs_[at];
        for (const int edge : out_[action.stage]) {
          --forward_needs_[cell(edges_[edge].to, action.microbatch)];
          send(action, edge, edges_[edge].to, touched);
        }
      } else if (action.kind == ActionKind::kBackwardInput) {
        --weight_needs_[at];
        for (const int edge : in_[action.stage]) {
          --input_needs_[cell(edges_[edge].from, action.microbatch)];
          send(action, edge, edges_[edge].from, touched);
        }
      }
    }
  }

  void send(const Action& made, int edge, int to, std::vector<int>& touched) {
    const int from_rank = rank_of_stage_[made.stage];
    const int to_rank = rank_of_stage_[to];
    if (to_rank < 0 || to_rank == from_rank) return;
    const bool activation = made.kind == ActionKind::kForward;
    result_[from_rank].push_back(
        {activation ? ActionKind::kSendActivation : ActionKind::kSendGradient, made.stage, made.microbatch, edge, to});
    result_[to_rank].push_back(
        {activation ? ActionKind::kRecvActivation : ActionKind::kRecvGradient, to, made.microbatch, edge, made.stage});
    touched.push_back(to_rank);
  }

  const Schedule& compute_;
  const bool split_backward_;
  Schedule result_;
  std::vector<RankState> ranks_;
  int stages_ = 0;
  int microbatches_ = 0;
  int64_t now_ = 0;
  std::vector<int> rank_of_stage_;
  std::vector<StageEdge> edges_;
  std::vector<std::vector<int>> out_, in_;                                         // by stage: edges
  std::vector<int> forward_needs_, input_needs_, weight_needs_, recompute_needs_;  // by stage and micro-batch
  std::priority_queue<std::pair<int64_t, int>, std::vector<std::pair<int64_t, int>>, std::greater<>> running_;
};

}  // namespace

std::vector<StageEdge> chain_edges(int stages) {
  std::vector<StageEdge> edges;
  for (int stage = 0; stage + 1 < stages; ++stage) edges.push_back({stage, stage + 1});
  return edges;
}

Schedule add_communication(const Schedule& compute, bool split_backward, const std::vector<StageEdge>& edges) {
  return Lowering(compute, split_backward, edges).run();
}

}  // namespace trireme::plan
