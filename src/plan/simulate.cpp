// The simulator: ranks run until they need what is not known yet, and go on when it is. All times follow from the lists alone, whatever
// the order in which ranks are tried, since every lane is in list order on both of its ends (check_schedule() has proven that).
#include "trireme/plan/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "base/str.h"
#include "plan/schedule_check.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr double kUnknown = -1;

class Engine {
 public:
  Engine(const Schedule& schedule, const ScheduleShape& shape, const SimulateOptions& options)
      : schedule_(schedule), shape_(shape), options_(options), ranks_(schedule.size()) {
    step_.actions.resize(schedule.size());
    for (size_t rank = 0; rank < schedule.size(); ++rank) step_.actions[rank].resize(schedule[rank].size());
    messages_.resize(shape.num_messages());
    const size_t cells = shape.cell(shape.stages, 0);
    prefetch_end_.assign(cells, 0);
    gather_end_.assign(shape.stages, 0);
  }

  SimulatedStep run() {
    std::deque<int> runnable;
    for (int rank = 0; rank < num_ranks(); ++rank) runnable.push_back(rank);
    while (!runnable.empty()) {
      const int rank = runnable.front();
      runnable.pop_front();
      woken_.clear();
      while (ranks_[rank].position < schedule_[rank].size() && advance(rank)) {
      }
      runnable.insert(runnable.end(), woken_.begin(), woken_.end());
    }
    for (int rank = 0; rank < num_ranks(); ++rank) {
      TRIREME_CHECK(ranks_[rank].position == schedule_[rank].size(), str("rank ", rank, " stands still"));
    }
    sum_up();
    return std::move(step_);
  }

 private:
  struct RankState {
    size_t position = 0;
    double now = 0;         ///< the computing lane is busy until then
    double began = 0;       ///< when what it computes or has computed last began
    double collective = 0;  ///< so are the other two
    double copy = 0;
    double first = kUnknown;
    bool posted = false;  ///< blocking: the messages at `position` are posted
    RankTime time;
  };
  struct Message {
    double sent = kUnknown;  ///< posted by the sender
    double wanted = kUnknown;
    double start = kUnknown;
    double end = kUnknown;
    int send_position = -1, recv_position = -1;
  };

  [[nodiscard]] int num_ranks() const { return static_cast<int>(schedule_.size()); }
  [[nodiscard]] const StageCost& cost(int stage) const {
    return options_.stages[options_.stages.size() == 1 ? 0 : stage];
  }
  [[nodiscard]] double slowdown(int rank) const {
    return options_.rank_slowdown.empty() ? 1 : options_.rank_slowdown[rank];
  }

  /// Runs the batch at a rank's position; false when something that it needs is not known yet.
  bool advance(int rank) {
    RankState& state = ranks_[rank];
    const std::vector<Action>& list = schedule_[rank];
    const Action& first = list[state.position];
    const size_t end = batch_end(list, state.position);
    if (is_compute(first.kind)) return compute(rank, end);
    if (is_message(first.kind)) return options_.blocking ? hold_messages(rank, end) : post_messages(rank, end);
    switch (first.kind) {
      case ActionKind::kReduceTied:
        return tied(rank);
      case ActionKind::kOptimizerStep:
        return optimizer(rank);
      default:
        aside(rank);
        return true;
    }
  }

  /// A whole backward is a batch of its own: nothing comes between its parts, and its gradient leaves when both are over.
  [[nodiscard]] size_t unit_end(int rank, size_t end) const {
    const std::vector<Action>& list = schedule_[rank];
    const size_t begin = ranks_[rank].position;
    const bool whole = end == begin + 1 && list[begin].kind == ActionKind::kBackwardInput && end < list.size() &&
                       list[end].kind == ActionKind::kBackwardWeight && list[end].stage == list[begin].stage &&
                       list[end].microbatch == list[begin].microbatch && list[end].batch == list[begin].batch;
    return whole ? end + 1 : end;
  }

  /// Since when what an action needs is there; `posted` is when the last message among it was handed to its link.
  double needs(int rank, const Action& action, double& posted) const {
    double ready = gather_end_[action.stage];
    posted = ready > 0 ? std::min(ready, gather_start(action.stage)) : 0;
    const size_t at = shape_.cell(action.stage, action.microbatch);
    const bool forward = action.kind == ActionKind::kForward;
    if (!forward && action.kind != ActionKind::kBackwardInput) return ready;
    if (!forward) ready = std::max(ready, prefetch_end_[at]);
    for (const int edge : forward ? shape_.in[action.stage] : shape_.out[action.stage]) {
      const int other = forward ? shape_.edges[edge].from : shape_.edges[edge].to;
      if (shape_.rank_of_stage[other] == rank) continue;  // ran further up in this list
      const ActionKind kind = forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient;
      const Message& message = messages_[shape_.message({kind, action.stage, action.microbatch, edge, other})];
      if (message.end == kUnknown) return kUnknown;
      if (message.end > ready) {
        ready = message.end;
        posted = message.sent;
      }
    }
    return ready;
  }

  [[nodiscard]] double gather_start(int stage) const { return gather_end_[stage] - cost(stage).gather_s; }

  bool compute(int rank, size_t batch_end_position) {
    RankState& state = ranks_[rank];
    const size_t end = unit_end(rank, batch_end_position);
    double ready = 0, posted = 0;
    for (size_t i = state.position; i < end; ++i) {
      double one_posted = 0;
      const double one = needs(rank, schedule_[rank][i], one_posted);
      if (one == kUnknown) return false;
      if (one > ready) {
        ready = one;
        posted = one_posted;
      }
    }
    wait_until(state, ready, posted);
    state.began = state.now;
    for (; state.position < end; ++state.position) compute_one(rank, state);
    return true;
  }

  void compute_one(int rank, RankState& state) {
    const Action& action = schedule_[rank][state.position];
    const StageCost& stage = cost(action.stage);
    const double duration = slowdown(rank) * (action.kind == ActionKind::kForward         ? stage.forward_s
                                              : action.kind == ActionKind::kBackwardInput ? stage.input_s
                                              : action.kind == ActionKind::kRecompute     ? stage.recompute_s
                                                                                          : stage.weight_s);
    if (state.first == kUnknown) state.first = state.now;
    step_.actions[rank][state.position] = {state.now, state.now + duration, Lane::kCompute};
    state.now += duration;
    state.time.compute_s += duration;
  }

  /// The computing lane stands still: first for another rank's work, then for a message that is under way.
  static void wait_until(RankState& state, double ready, double posted) {
    if (ready <= state.now) return;
    const double exposed = ready - std::clamp(posted, state.now, ready);
    state.time.exposed_s += exposed;
    if (state.first != kUnknown) state.time.bubble_s += ready - state.now - exposed;
    state.now = ready;
  }

  /// Hands messages to their links and goes on. A receive waits beside the computation that stands before it; a send needs its result.
  bool post_messages(int rank, size_t end) {
    RankState& state = ranks_[rank];
    for (; state.position < end; ++state.position) {
      post(rank, state.position, is_send(schedule_[rank][state.position].kind) ? state.now : state.began);
    }
    return true;
  }

  void post(int rank, size_t position, double now) {
    const Action& action = schedule_[rank][position];
    Message& message = messages_[shape_.message(action)];
    (is_send(action.kind) ? message.sent : message.wanted) = now;
    (is_send(action.kind) ? message.send_position : message.recv_position) = static_cast<int>(position);
    if (message.sent == kUnknown || message.wanted == kUnknown) return;
    const int peer = shape_.rank_of_stage[action.peer_stage];
    const int from = is_send(action.kind) ? rank : peer;
    const int to = is_send(action.kind) ? peer : rank;
    double& link_free = links_[{from, to}];
    message.start = std::max({message.sent, message.wanted, link_free});
    message.end = link_free = message.start + message_time(action.edge, from, to);
    step_.actions[from][message.send_position] = {message.start, message.end, Lane::kMessage};
    step_.actions[to][message.recv_position] = {message.start, message.end, Lane::kMessage};
    if (peer != rank) woken_.push_back(peer);
  }

  [[nodiscard]] double message_time(int edge, int from, int to) const {
    double time = options_.link.latency_s;
    if (options_.link.bytes_per_s > 0 && !options_.edge_bytes.empty()) {
      time += options_.edge_bytes[options_.edge_bytes.size() == 1 ? 0 : edge] / options_.link.bytes_per_s;
    }
    if (options_.link_slowdown.empty()) return time;
    // Between neighbours of the ring of ranks; a message over several of them is as slow as the slowest.
    const int n = num_ranks();
    const int low = std::min(from, to), high = std::max(from, to);
    if (high - low == n - 1 && n > 2) return time * options_.link_slowdown[n - 1];
    double worst = 0;
    for (int r = low; r < high; ++r) worst = std::max(worst, options_.link_slowdown[r]);
    return time * worst;
  }

  /// Blocking messages: the rank stands until all of its batch are over.
  bool hold_messages(int rank, size_t end) {
    RankState& state = ranks_[rank];
    if (!state.posted) {
      state.posted = true;
      for (size_t i = state.position; i < end; ++i) post(rank, i, state.now);
    }
    double ready = 0, start = 0;
    for (size_t i = state.position; i < end; ++i) {
      const Message& message = messages_[shape_.message(schedule_[rank][i])];
      if (message.end == kUnknown) return false;
      if (message.end > ready) {
        ready = message.end;
        start = message.start;
      }
    }
    state.posted = false;
    wait_until(state, ready, start);
    state.position = end;
    return true;
  }

  /// Gathers, reductions and copies go on beside computation.
  void aside(int rank) {
    RankState& state = ranks_[rank];
    const Action& action = schedule_[rank][state.position];
    const StageCost& stage = cost(action.stage);
    const bool copy = action.kind == ActionKind::kOffload || action.kind == ActionKind::kPrefetch;
    const double duration = copy                                       ? stage.copy_s
                            : action.kind == ActionKind::kGatherParams ? stage.gather_s
                            : action.kind == ActionKind::kReduceGrads  ? stage.reduce_s
                                                                       : 0;
    double& lane = copy ? state.copy : state.collective;
    double start = std::max(lane, state.now);
    if (action.kind == ActionKind::kReleaseParams) start = state.now;
    const double end = start + duration;
    if (action.kind != ActionKind::kReleaseParams) lane = end;
    if (action.kind == ActionKind::kPrefetch) prefetch_end_[shape_.cell(action.stage, action.microbatch)] = end;
    if (action.kind == ActionKind::kGatherParams) gather_end_[action.stage] = end;
    step_.actions[rank][state.position] = {start, end, copy ? Lane::kCopy : Lane::kCollective};
    ++state.position;
  }

  /// Two ranks add the gradients of weights that they share: both collective lanes are held from when both are there.
  bool tied(int rank) {
    RankState& state = ranks_[rank];
    const Action& action = schedule_[rank][state.position];
    const double here = std::max(state.collective, state.now);
    const double duration = cost(action.stage).tied_s;
    const int peer = shape_.rank_of_stage[action.peer_stage];
    if (peer == rank) {
      step_.actions[rank][state.position++] = {here, here + duration, Lane::kCollective};
      state.collective = here + duration;
      return true;
    }
    tied_here_[{action.stage, action.peer_stage}] = here;
    const auto other = tied_here_.find({action.peer_stage, action.stage});
    if (other == tied_here_.end()) return false;
    const double start = std::max(here, other->second);
    step_.actions[rank][state.position++] = {start, start + duration, Lane::kCollective};
    state.collective = start + duration;
    woken_.push_back(peer);
    return true;
  }

  bool optimizer(int rank) {
    RankState& state = ranks_[rank];
    wait_until(state, std::max(state.collective, state.copy), 0);
    double duration = 0;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      if (shape_.rank_of_stage[stage] == rank) duration += cost(stage).optimizer_s;
    }
    duration *= slowdown(rank);
    if (state.first == kUnknown) state.first = state.now;
    step_.actions[rank][state.position++] = {state.now, state.now + duration, Lane::kCompute};
    state.now += duration;
    state.time.compute_s += duration;
    return true;
  }

  void sum_up() {
    for (RankState& state : ranks_) {
      wait_until(state, std::max(state.collective, state.copy), 0);
      step_.step_s = std::max(step_.step_s, state.now);
    }
    double bubble = 0, exposed = 0;
    for (RankState& state : ranks_) {
      state.time.outside_s = step_.step_s - state.time.compute_s - state.time.exposed_s - state.time.bubble_s;
      bubble += state.time.bubble_s + state.time.outside_s;
      exposed += state.time.exposed_s;
      step_.ranks.push_back(state.time);
    }
    if (step_.step_s > 0) {
      step_.bubble = bubble / (step_.step_s * num_ranks());
      step_.exposed = exposed / (step_.step_s * num_ranks());
    }
    step_.rank_of_stage = shape_.rank_of_stage;
    memory();
  }

  /// Bytes over time: each action's change at its start where it takes memory, at its end where it gives some back.
  void memory() {
    std::vector<bool> recomputed(shape_.cell(shape_.stages, 0));
    for (const std::vector<Action>& list : schedule_) {
      for (const Action& action : list) {
        if (action.kind == ActionKind::kRecompute) recomputed[shape_.cell(action.stage, action.microbatch)] = true;
      }
    }
    std::vector<std::vector<std::pair<double, double>>> changes(shape_.stages);
    for (int rank = 0; rank < num_ranks(); ++rank) {
      for (size_t i = 0; i < schedule_[rank].size(); ++i) {
        const Action& action = schedule_[rank][i];
        const double bytes = memory_change(
            action, has_microbatch(action.kind) && recomputed[shape_.cell(action.stage, action.microbatch)]);
        const SimulatedAction& when = step_.actions[rank][i];
        if (bytes != 0) changes[action.stage].emplace_back(bytes > 0 ? when.start_s : when.end_s, bytes);
      }
    }
    step_.memory.resize(shape_.stages);
    step_.stage_peak_bytes.resize(shape_.stages);
    step_.rank_peak_bytes.resize(schedule_.size());
    std::vector<std::vector<std::pair<double, double>>> by_rank(schedule_.size());
    std::vector<double> rank_static(schedule_.size());
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const int rank = shape_.rank_of_stage[stage];
      step_.stage_peak_bytes[stage] = curve(changes[stage], cost(stage).static_bytes, &step_.memory[stage]);
      by_rank[rank].insert(by_rank[rank].end(), changes[stage].begin(), changes[stage].end());
      rank_static[rank] += cost(stage).static_bytes;
    }
    for (size_t rank = 0; rank < schedule_.size(); ++rank) {
      step_.rank_peak_bytes[rank] = curve(by_rank[rank], rank_static[rank], nullptr);
    }
  }

  [[nodiscard]] double memory_change(const Action& action, bool recomputed) const {
    const StageCost& stage = cost(action.stage);
    switch (action.kind) {
      case ActionKind::kForward:
        return shape_.forward_only ? 0 : recomputed ? stage.checkpoint_bytes : stage.activation_bytes;
      case ActionKind::kRecompute:
        return stage.activation_bytes - stage.checkpoint_bytes;
      case ActionKind::kBackwardWeight:
      case ActionKind::kOffload:
        return -stage.activation_bytes;
      case ActionKind::kPrefetch:
        return stage.activation_bytes;
      case ActionKind::kGatherParams:
        return stage.gathered_bytes;
      case ActionKind::kReleaseParams:
        return -stage.gathered_bytes;
      default:
        return 0;
    }
  }

  /// Adds changes up in order of time (what is given back first, at equal times); returns the peak.
  static double curve(std::vector<std::pair<double, double>>& changes, double bytes, std::vector<MemoryPoint>* points) {
    std::sort(changes.begin(), changes.end());
    double peak = bytes;
    if (points != nullptr) points->push_back({0, bytes});
    for (const auto& [at, change] : changes) {
      bytes += change;
      peak = std::max(peak, bytes);
      if (points == nullptr) continue;
      if (points->back().at_s == at) {
        points->back().bytes = bytes;
      } else {
        points->push_back({at, bytes});
      }
    }
    return peak;
  }

  const Schedule& schedule_;
  const ScheduleShape& shape_;
  const SimulateOptions& options_;
  SimulatedStep step_;
  std::vector<RankState> ranks_;
  std::vector<Message> messages_;
  std::map<std::pair<int, int>, double> links_;      // from, to: busy until
  std::map<std::pair<int, int>, double> tied_here_;  // stage, other stage: since when its rank is there
  std::vector<double> prefetch_end_, gather_end_;
  std::vector<int> woken_;
};

void check_options(const Schedule& schedule, const ScheduleShape& shape, const SimulateOptions& options) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorKind::kInvalidArgument, str("[plan.simulate] ", what));
  };
  const auto length = [&](const char* name, size_t size, size_t all, bool one, bool none) {
    if (size == all || (one && size == 1) || (none && size == 0)) return;
    refuse(str(name, " has ", size, " entries; ", none ? "none or " : "", one ? "1 or " : "", all, " are required."));
  };
  length("stages", options.stages.size(), shape.stages, true, false);
  length("edge_bytes", options.edge_bytes.size(), shape.edges.size(), true, true);
  length("rank_slowdown", options.rank_slowdown.size(), schedule.size(), false, true);
  length("link_slowdown", options.link_slowdown.size(), schedule.size(), false, true);
  const auto number = [&](const char* name, double value) {
    if (!(value >= 0 && std::isfinite(value))) {
      refuse(str(name, " is ", value, "; a finite number of at least 0 is required."));
    }
  };
  for (const StageCost& stage : options.stages) {
    for (const double value : {stage.forward_s, stage.input_s, stage.weight_s, stage.recompute_s, stage.gather_s,
                               stage.reduce_s, stage.tied_s, stage.copy_s, stage.optimizer_s}) {
      number("a duration", value);
    }
  }
  for (const double value : options.edge_bytes) number("edge_bytes", value);
  for (const double value : options.rank_slowdown) number("rank_slowdown", value);
  for (const double value : options.link_slowdown) number("link_slowdown", value);
  number("latency_s", options.link.latency_s);
  number("bytes_per_s", options.link.bytes_per_s);
}

}  // namespace

SimulatedStep simulate(const Schedule& schedule, const ScheduleRules& rules, const SimulateOptions& options) {
  const Result<ScheduleStats> stats = check_schedule(schedule, rules);
  if (!stats.ok()) throw Error(ErrorKind::kInvalidArgument, stats.reason());
  ScheduleShape shape;
  (void)find_shape(schedule, rules, shape);
  check_options(schedule, shape, options);
  return Engine(schedule, shape, options).run();
}

}  // namespace trireme::plan
