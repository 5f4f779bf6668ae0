#include "plan/schedule_oracle.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

namespace trireme::plan {
namespace {

using Key = std::tuple<int, int>;            // stage, micro-batch
using Message = std::tuple<bool, int, int>;  // gradient, edge, micro-batch

bool of(ActionKind kind, std::initializer_list<ActionKind> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}
bool computes(ActionKind k) {
  return of(k, {ActionKind::kForward, ActionKind::kBackwardInput, ActionKind::kBackwardWeight, ActionKind::kRecompute});
}
bool sends(ActionKind k) { return of(k, {ActionKind::kSendActivation, ActionKind::kSendGradient}); }
bool receives(ActionKind k) { return of(k, {ActionKind::kRecvActivation, ActionKind::kRecvGradient}); }
bool is_gradient(ActionKind k) { return of(k, {ActionKind::kSendGradient, ActionKind::kRecvGradient}); }

/// The whole machine: every rank's memory as sets of names, and what is posted between each two ranks.
class Machine {
 public:
  Machine(const Schedule& schedule, const ScheduleRules& rules) : schedule_(schedule), rules_(rules) {
    edges_ = rules.edges;
    if (edges_.empty()) {
      for (int i = 0; i + 1 < rules.stages; ++i) edges_.push_back({i, i + 1});
    }
    position_.resize(schedule.size());
    posted_.resize(schedule.size());
    batches_.resize(schedule.size());
    optimizer_.resize(schedule.size());
  }

  std::string run() {
    read_before_running();
    bool moved = true;
    while (moved && fault_.empty()) {
      moved = false;
      for (int rank = 0; rank < ranks() && fault_.empty(); ++rank) moved |= step(rank);
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      if (position_[rank] < schedule_[rank].size()) fail("stuck");
    }
    for (int stage = 0; stage < rules_.stages; ++stage) {
      for (int m = 0; m < rules_.microbatches; ++m) {
        if (forward_.count({stage, m}) == 0) fail("no forward");
        if (training_ && weight_.count({stage, m}) == 0) fail("no backward");
      }
    }
    return fault_;
  }

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(schedule_.size()); }
  void fail(const std::string& what) {
    if (fault_.empty()) fault_ = what;
  }

  void read_before_running() {
    std::map<int, std::set<int>> homes;
    std::map<int, int> forwards;
    for (int rank = 0; rank < ranks(); ++rank) {
      for (const Action& action : schedule_[rank]) {
        homes[action.stage].insert(rank);
        if (action.kind == ActionKind::kForward) ++forwards[action.stage];
        if (of(action.kind, {ActionKind::kBackwardInput, ActionKind::kBackwardWeight})) training_ = true;
        if (action.kind == ActionKind::kRecompute) recompute_planned_.insert({action.stage, action.microbatch});
        if (action.kind == ActionKind::kGatherParams) sharded_.insert(action.stage);
      }
    }
    for (const auto& [stage, where] : homes) {
      if (stage < 0 || stage >= rules_.stages || where.size() != 1) fail("stage numbers or places");
    }
    for (int stage = 0; stage < rules_.stages; ++stage) {
      if (forwards[stage] == 0) return fail("stage without forward");
      home_.push_back(homes[stage].empty() ? -1 : *homes[stage].begin());
    }
  }

  bool step(int rank) {
    const auto& list = schedule_[rank];
    if (position_[rank] >= list.size()) return false;
    size_t end = position_[rank] + 1;
    const int batch = list[position_[rank]].batch;
    if (batch >= 0) {
      while (end < list.size() && list[end].batch == batch) ++end;
    }
    const bool messages =
        sends(list[position_[rank]].kind) || receives(list[position_[rank]].kind) || crosses(list[position_[rank]]);
    return messages ? communicate(rank, end) : compute(rank, end);
  }

  [[nodiscard]] bool crosses(const Action& a) const {
    return a.kind == ActionKind::kReduceTied && a.peer_stage >= 0 && a.peer_stage < rules_.stages &&
           home_[a.stage] != home_[a.peer_stage];
  }

  bool new_batch(int rank, int batch) { return batch < 0 || batches_[rank].insert(batch).second; }

  bool compute(int rank, size_t end) {
    const auto& list = schedule_[rank];
    const size_t begin = position_[rank];
    if (!new_batch(rank, list[begin].batch)) fail("batch twice");
    // Those of one batch start together: none may use what another one makes, but a backward's weights its input.
    std::vector<std::string> faults;
    for (size_t i = begin; i < end; ++i) {
      if (list[begin].batch >= 0 && !computes(list[i].kind)) fail("mixed batch");
      const bool own = std::any_of(list.data() + begin, list.data() + i, [&](const Action& other) {
        return other.kind == ActionKind::kBackwardInput && other.stage == list[i].stage &&
               other.microbatch == list[i].microbatch;
      });
      const std::string what = lacks(rank, list[i], own);
      if (!what.empty()) return fail(what), false;
    }
    for (size_t i = begin; i < end; ++i) perform(rank, list[i]);
    position_[rank] = end;
    return true;
  }

  std::string lacks(int rank, const Action& a, bool input_in_batch) {
    const Key key{a.stage, a.microbatch};
    if (optimizer_[rank] && a.kind != ActionKind::kReleaseParams) return "after optimizer";
    if (of(a.kind, {ActionKind::kForward, ActionKind::kBackwardInput, ActionKind::kBackwardWeight,
                    ActionKind::kRecompute, ActionKind::kOffload, ActionKind::kPrefetch}) &&
        (a.microbatch < 0 || a.microbatch >= rules_.microbatches)) {
      return "no such micro-batch";
    }
    if (computes(a.kind) && sharded_.count(a.stage) != 0 && gathered_.count(a.stage) == 0) return "weights not there";
    switch (a.kind) {
      case ActionKind::kForward:
        for (size_t e = 0; e < edges_.size(); ++e) {
          if (edges_[e].to == a.stage && here_.count({rank, false, static_cast<int>(e), a.microbatch}) == 0) {
            return "forward without input";
          }
        }
        return forward_.count(key) != 0 ? "forward twice" : "";
      case ActionKind::kRecompute:
        if (!training_ || forward_.count(key) == 0 || recomputed_.count(key) != 0 || input_.count(key) != 0) {
          return "recompute";
        }
        return "";
      case ActionKind::kBackwardInput:
        if (forward_.count(key) == 0 || input_.count(key) != 0 || resident_.count(key) == 0) return "backward";
        for (size_t e = 0; e < edges_.size(); ++e) {
          if (edges_[e].from == a.stage && here_.count({rank, true, static_cast<int>(e), a.microbatch}) == 0) {
            return "backward without gradient";
          }
        }
        return "";
      case ActionKind::kBackwardWeight:
        return weight_.count(key) != 0 || (input_.count(key) == 0 && !input_in_batch) ? "weights" : "";
      case ActionKind::kOffload:
        return resident_.count(key) == 0 || input_.count(key) != 0 ? "offload" : "";
      case ActionKind::kPrefetch:
        return offloaded_.count(key) == 0 ? "prefetch" : "";
      case ActionKind::kGatherParams:
        return gathered_.count(a.stage) != 0 ? "gathered twice" : "";
      case ActionKind::kReleaseParams:
        return gathered_.count(a.stage) == 0 ? "released" : "";
      case ActionKind::kReduceGrads:
        return reduced_.count(a.stage) != 0 || !backwards_done(a.stage) ? "reduce" : "";
      case ActionKind::kReduceTied:
        return a.peer_stage < 0 || a.peer_stage >= rules_.stages || a.peer_stage == a.stage ||
                       tied_.count({a.stage, a.peer_stage}) != 0 || !backwards_done(a.stage) ||
                       (home_[a.peer_stage] == rank && !backwards_done(a.peer_stage))
                   ? "tied"
                   : "";
      case ActionKind::kOptimizerStep:
        for (int stage = 0; stage < rules_.stages; ++stage) {
          if (home_[stage] == rank && !backwards_done(stage)) return "optimizer too early";
        }
        return "";
      default:
        return "message among computation";
    }
  }

  [[nodiscard]] bool backwards_done(int stage) const {
    for (int m = 0; m < rules_.microbatches; ++m) {
      if (weight_.count({stage, m}) == 0) return false;
    }
    return true;
  }

  void perform(int rank, const Action& a) {
    const Key key{a.stage, a.microbatch};
    switch (a.kind) {
      case ActionKind::kForward:
        if (!forward_.insert(key).second) fail("forward twice in a batch");
        for (size_t e = 0; e < edges_.size(); ++e) {
          if (edges_[e].from == a.stage) here_.insert({rank, false, static_cast<int>(e), a.microbatch});
        }
        if (training_ && recompute_planned_.count(key) == 0) resident_.insert(key);
        break;
      case ActionKind::kRecompute:
        if (!recomputed_.insert(key).second) fail("recompute twice in a batch");
        resident_.insert(key);
        break;
      case ActionKind::kBackwardInput:
        if (!input_.insert(key).second) fail("backward twice in a batch");
        for (size_t e = 0; e < edges_.size(); ++e) {
          if (edges_[e].to == a.stage) here_.insert({rank, true, static_cast<int>(e), a.microbatch});
        }
        break;
      case ActionKind::kBackwardWeight:
        if (!weight_.insert(key).second) fail("weights twice in a batch");
        resident_.erase(key);
        break;
      case ActionKind::kOffload:
        resident_.erase(key);
        offloaded_.insert(key);
        break;
      case ActionKind::kPrefetch:
        offloaded_.erase(key);
        resident_.insert(key);
        break;
      case ActionKind::kGatherParams:
        gathered_.insert(a.stage);
        break;
      case ActionKind::kReleaseParams:
        gathered_.erase(a.stage);
        break;
      case ActionKind::kReduceGrads:
        reduced_.insert(a.stage);
        break;
      case ActionKind::kReduceTied:
        tied_.insert({a.stage, a.peer_stage});
        break;
      case ActionKind::kOptimizerStep:
        optimizer_[rank] = true;
        break;
      default:
        break;
    }
    check_memory(rank);
  }

  void check_memory(int rank) {
    std::map<int, int> by_stage;
    int on_rank = 0;
    for (const auto& [stage, m] : resident_) {
      ++by_stage[stage];
      on_rank += home_[stage] == rank ? 1 : 0;
    }
    for (const auto& [stage, count] : by_stage) {
      if (!rules_.stage_bounds.empty() && count > rules_.stage_bounds[stage]) fail("stage memory");
    }
    if (!rules_.rank_bounds.empty() && on_rank > rules_.rank_bounds[rank]) fail("rank memory");
  }

  struct Posted {
    Action action;
    bool met = false;
  };

  bool communicate(int rank, size_t end) {
    bool moved = false;
    if (posted_[rank].empty()) {
      const auto& list = schedule_[rank];
      if (!new_batch(rank, list[position_[rank]].batch)) fail("batch twice");
      for (size_t i = position_[rank]; i < end; ++i) {
        if (const std::string what = cannot_post(rank, list[i]); !what.empty()) return fail(what), false;
      }
      for (size_t i = position_[rank]; i < end; ++i) {
        if (!posted_ever_.insert({list[i].kind, list[i].edge, list[i].microbatch, list[i].stage, list[i].peer_stage})
                 .second) {
          fail("message twice");
        }
        posted_[rank].push_back({list[i], false});
      }
      moved = true;
    }
    for (int peer = 0; peer < ranks(); ++peer) moved |= meet(rank, peer) || meet(peer, rank) || meet_tied(rank, peer);
    if (!fault_.empty()) return false;
    if (std::all_of(posted_[rank].begin(), posted_[rank].end(), [](const Posted& p) { return p.met; })) {
      for (const Posted& done : posted_[rank]) {
        if (receives(done.action.kind)) {
          here_.insert({rank, is_gradient(done.action.kind), done.action.edge, done.action.microbatch});
        } else if (done.action.kind == ActionKind::kReduceTied) {
          tied_.insert({done.action.stage, done.action.peer_stage});
        }
      }
      posted_[rank].clear();
      position_[rank] = end;
      moved = true;
    }
    return moved;
  }

  std::string cannot_post(int rank, const Action& a) {
    if (crosses(a)) return a.batch >= 0 ? "tied in a batch" : lacks(rank, a, false);
    if (!sends(a.kind) && !receives(a.kind)) return "mixed batch";
    if (a.microbatch < 0 || a.microbatch >= rules_.microbatches) return "no such micro-batch";
    if (a.edge < 0 || a.edge >= static_cast<int>(edges_.size())) return "no such edge";
    const bool begins = of(a.kind, {ActionKind::kSendActivation, ActionKind::kRecvGradient});
    if (a.stage != (begins ? edges_[a.edge].from : edges_[a.edge].to)) return "wrong end";
    if (a.peer_stage != (begins ? edges_[a.edge].to : edges_[a.edge].from)) return "wrong other end";
    if (home_[a.peer_stage] == rank) return "message to itself";
    if (a.kind == ActionKind::kSendActivation && forward_.count({a.stage, a.microbatch}) == 0) return "nothing to send";
    if (a.kind == ActionKind::kSendGradient && input_.count({a.stage, a.microbatch}) == 0) return "nothing to send";
    return "";
  }

  /// What is posted from one rank to another meets in order, as in a transport without tags.
  bool meet(int from, int to) {
    if (from == to) return false;
    bool moved = false;
    while (true) {
      const auto send = std::find_if(posted_[from].begin(), posted_[from].end(), [&](const Posted& p) {
        return !p.met && sends(p.action.kind) && home_[p.action.peer_stage] == to;
      });
      const auto recv = std::find_if(posted_[to].begin(), posted_[to].end(), [&](const Posted& p) {
        return !p.met && receives(p.action.kind) && home_[p.action.peer_stage] == from;
      });
      if (send == posted_[from].end() || recv == posted_[to].end()) return moved;
      const Message sent{is_gradient(send->action.kind), send->action.edge, send->action.microbatch};
      const Message wanted{is_gradient(recv->action.kind), recv->action.edge, recv->action.microbatch};
      if (sent != wanted) return fail("another message than expected"), false;
      send->met = recv->met = moved = true;
    }
  }

  bool meet_tied(int a, int b) {
    for (Posted& one : posted_[a]) {
      for (Posted& other : posted_[b]) {
        if (one.action.kind == ActionKind::kReduceTied && other.action.kind == ActionKind::kReduceTied && !one.met &&
            !other.met && one.action.stage == other.action.peer_stage && one.action.peer_stage == other.action.stage) {
          one.met = other.met = true;
          return true;
        }
      }
    }
    return false;
  }

  const Schedule& schedule_;
  const ScheduleRules& rules_;
  std::vector<StageEdge> edges_;
  std::vector<int> home_;
  bool training_ = false;
  std::string fault_;
  std::vector<size_t> position_;
  std::vector<std::vector<Posted>> posted_;
  std::vector<std::set<int>> batches_;
  std::vector<bool> optimizer_;
  std::set<Key> forward_, input_, weight_, recomputed_, recompute_planned_, resident_, offloaded_;
  std::set<int> sharded_, gathered_, reduced_;
  std::set<std::pair<int, int>> tied_;
  std::set<std::tuple<int, bool, int, int>> here_;  // rank, gradient, edge, micro-batch: tensors that lie there
  std::set<std::tuple<ActionKind, int, int, int, int>> posted_ever_;
};

}  // namespace

std::string brute_force_fault(const Schedule& schedule, const ScheduleRules& rules) {
  return Machine(schedule, rules).run();
}

std::vector<RankTimes> run_with_times(const Schedule& schedule, const std::vector<int>& rank_of_stage, double forward,
                                      double input, double weight) {
  const int stages = static_cast<int>(rank_of_stage.size());
  std::map<std::tuple<int, int, int>, double> end;  // kind, stage, micro-batch
  std::vector<RankTimes> times(schedule.size(), {-1, 0, 0});
  std::vector<size_t> next(schedule.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < schedule.size(); ++rank) {
      while (next[rank] < schedule[rank].size()) {
        const Action& a = schedule[rank][next[rank]];
        double duration = 0;
        double begin = times[rank].last_end;
        if (a.kind == ActionKind::kForward) {
          duration = forward;
          if (a.stage > 0) {
            const auto made = end.find({0, a.stage - 1, a.microbatch});
            if (made == end.end()) break;
            begin = std::max(begin, made->second);
          }
        } else if (a.kind == ActionKind::kBackwardInput) {
          duration = input;
          if (a.stage + 1 < stages) {
            const auto made = end.find({1, a.stage + 1, a.microbatch});
            if (made == end.end()) break;
            begin = std::max(begin, made->second);
          }
        } else if (a.kind == ActionKind::kBackwardWeight) {
          duration = weight;
        }
        ++next[rank];
        moved = true;
        if (duration == 0) continue;
        // A backward that is not split hands its gradient on when all of it is done.
        const bool whole = a.kind == ActionKind::kBackwardInput && next[rank] < schedule[rank].size() &&
                           schedule[rank][next[rank]].kind == ActionKind::kBackwardWeight &&
                           schedule[rank][next[rank]].microbatch == a.microbatch &&
                           schedule[rank][next[rank]].stage == a.stage;
        if (times[rank].first_start < 0) times[rank].first_start = begin;
        times[rank].last_end = begin + duration;
        times[rank].busy += duration;
        const int kind = a.kind == ActionKind::kForward ? 0 : a.kind == ActionKind::kBackwardInput ? 1 : 2;
        end[{kind, a.stage, a.microbatch}] = begin + duration + (whole ? weight : 0);
      }
    }
  }
  return times;
}

}  // namespace trireme::plan
