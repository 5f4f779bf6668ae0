// The schedules of the papers, as lists of compute actions; schedule_lower.cpp adds the messages.
#include <algorithm>
#include <cctype>

#include "base/nearest.h"
#include "base/str.h"
#include "trireme/base/error.h"
#include "trireme/plan/schedule.h"

namespace trireme::plan {
namespace {

struct Name {
  const char* name;
  const char* torch_name;
  bool splits_backward;
  int virtual_stages;  ///< where nobody names a number
};
constexpr Name kNames[] = {{"gpipe", "loopedbfs", false, 1},
                           {"1f1b", "1f1b", false, 1},
                           {"interleaved", "interleaved1f1b", false, 2},
                           {"zb1p", "interleavedzerobubble", true, 1},
                           {"zb2p", "zb-h2", true, 1},
                           {"zbv", "zbvzerobubble", true, 2}};

const Name& find_name(std::string_view wanted) {
  std::string lower(wanted);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "zb-h1") lower = "zb1p";
  if (lower == "zb-v") lower = "zbv";
  for (const Name& name : kNames) {
    if (lower == name.name || lower == name.torch_name) return name;
  }
  const std::vector<std::string> known = schedule_names();
  throw Error(ErrorKind::kInvalidArgument,
              str("[plan.make_schedule] unknown schedule '", wanted, "'", did_you_mean(lower, known),
                  "; one of these is required: ", join(known), "."));
}

/// One rank's list while it is being written.
class RankList {
 public:
  explicit RankList(int microbatches) : microbatches_(microbatches) {}
  void forward(int stage, int microbatch) { add(ActionKind::kForward, stage, microbatch); }
  void input(int stage, int microbatch) { add(ActionKind::kBackwardInput, stage, microbatch); }
  void weight(int stage, int microbatch) { add(ActionKind::kBackwardWeight, stage, microbatch); }
  void backward(int stage, int microbatch) {
    input(stage, microbatch);
    weight(stage, microbatch);
  }
  [[nodiscard]] std::vector<Action> take() { return std::move(actions_); }

 private:
  /// Micro-batches beyond the last are left out: ZB-V is written for at least 2 p - 1.
  void add(ActionKind kind, int stage, int microbatch) {
    if (microbatch < microbatches_) actions_.push_back({kind, stage, microbatch});
  }
  int microbatches_;
  std::vector<Action> actions_;
};

/// (stage, micro-batch) pairs in the order in which a rank of an interleaved schedule runs its forwards; with `reversed` chunks that of its
/// backwards. Rounds of p micro-batches go through all chunks of a rank before the next round; the first m % rounds have one more.
std::vector<std::pair<int, int>> interleaved_order(int rank, const ScheduleOptions& options, bool reversed) {
  const int p = options.ranks;
  const int v = options.virtual_stages;
  const int m = options.microbatches;
  const int rounds = std::max(1, m / p);
  std::vector<std::pair<int, int>> order;
  order.reserve(static_cast<size_t>(v) * m);
  int first = 0;
  for (int round = 0; round < rounds; ++round) {
    const int size = m / rounds + (round < m % rounds ? 1 : 0);
    for (int chunk = 0; chunk < v; ++chunk) {
      const int stage = (reversed ? v - 1 - chunk : chunk) * p + rank;
      for (int i = 0; i < size; ++i) order.emplace_back(stage, first + i);
    }
    first += size;
  }
  return order;
}

/// The common frame of 1F1B, interleaved 1F1B, ZB-H1 and ZB-H2: `warmup` forwards, then pairs of a forward and a backward, then the rest of
/// the backwards. `weight_delay` < 0: full backwards. Else the weights of a backward come that many backwards later, the last at the end.
std::vector<Action> one_forward_one_backward(int rank, const ScheduleOptions& options, int warmup, int weight_delay) {
  const auto forwards = interleaved_order(rank, options, false);
  const auto backwards = interleaved_order(rank, options, true);
  const int total = static_cast<int>(forwards.size());
  warmup = std::min(warmup, total);
  RankList list(options.microbatches);
  int weights = 0;
  for (int i = 0; i < warmup; ++i) list.forward(forwards[i].first, forwards[i].second);
  for (int i = 0; i < total; ++i) {
    if (warmup + i < total) list.forward(forwards[warmup + i].first, forwards[warmup + i].second);
    list.input(backwards[i].first, backwards[i].second);
    if (weight_delay < 0 || i >= weight_delay) {
      list.weight(backwards[weights].first, backwards[weights].second);
      ++weights;
    }
  }
  for (; weights < total; ++weights) list.weight(backwards[weights].first, backwards[weights].second);
  return list.take();
}

/// Micro-batches of the longest round.
int round_size(const ScheduleOptions& options) {
  const int rounds = std::max(1, options.microbatches / options.ranks);
  return (options.microbatches + rounds - 1) / rounds;
}

std::vector<Action> gpipe(int rank, const ScheduleOptions& options) {
  RankList list(options.microbatches);
  for (int chunk = 0; chunk < options.virtual_stages; ++chunk) {
    for (int i = 0; i < options.microbatches; ++i) list.forward(chunk * options.ranks + rank, i);
  }
  for (int chunk = options.virtual_stages - 1; chunk >= 0; --chunk) {
    for (int i = 0; i < options.microbatches; ++i) list.backward(chunk * options.ranks + rank, i);
  }
  return list.take();
}

/// ZB-V, section 6 of arXiv:2401.10241: two chunks on a rank in the shape of a V, so that the last stage is on the first rank.
std::vector<Action> zero_bubble_v(int rank, const ScheduleOptions& options) {
  const int p = options.ranks;
  const int rounds = std::max(2 * p - 1, options.microbatches);
  const int down = rank;
  const int up = 2 * p - 1 - rank;
  RankList list(options.microbatches);
  int f0 = 0, f1 = 0, b0 = 0, b1 = 0;
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) list.forward(down, f0++);
  for (int i = 0; i < rank; ++i) {
    list.forward(up, f1++);
    list.forward(down, f0++);
  }
  for (int i = 0; i < p - rank; ++i) {
    list.forward(up, f1++);
    list.backward(up, b1++);
  }
  while (f1 < f0 || f0 < rounds) {
    if (f0 < rounds) list.forward(down, f0++);
    list.backward(down, b0++);
    list.forward(up, f1++);
    list.backward(up, b1++);
  }
  int w0 = b0, w1 = b1;
  for (int i = 0; i < rank; ++i) {
    list.input(down, b0++);
    list.input(up, b1++);
  }
  for (int i = 0; i < p - rank; ++i) {
    list.input(down, b0++);
    list.weight(down, w0++);
  }
  while (w1 < b1) list.weight(up, w1++);
  while (w0 < b0) list.weight(down, w0++);
  return list.take();
}

std::vector<Action> rank_actions(std::string_view name, int rank, const ScheduleOptions& options) {
  const int left = options.ranks - 1 - rank;
  const int chunks_before = (options.virtual_stages - 1) * round_size(options);
  if (name == "gpipe") return gpipe(rank, options);
  if (name == "1f1b") return one_forward_one_backward(rank, options, left, -1);
  // One chunk has nothing to interleave: it is 1F1B then, not the same with twice the memory.
  if (name == "interleaved") {
    return one_forward_one_backward(rank, options, chunks_before + (options.virtual_stages > 1 ? 2 : 1) * left, -1);
  }
  if (name == "zb1p") return one_forward_one_backward(rank, options, chunks_before + left, rank);
  if (name == "zb2p") return one_forward_one_backward(rank, options, 2 * left, 2 * rank);
  return zero_bubble_v(rank, options);
}

void check_options(std::string_view name, const ScheduleOptions& options) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kInvalidArgument, str("[plan.make_schedule] ", name, ": ", what));
  };
  if (options.ranks < 1 || options.virtual_stages < 1 || options.microbatches < 1) {
    refuse(str("ranks ", options.ranks, ", virtual stages ", options.virtual_stages, ", micro-batches ",
               options.microbatches, "; each must be at least 1."));
  }
  constexpr int64_t kMost = 4'000'000;  // about half a gigabyte of actions
  const int64_t stages = int64_t{options.ranks} * options.virtual_stages;
  if (stages > kMost || stages * options.microbatches > kMost) {
    refuse(str("ranks ", options.ranks, " x virtual stages ", options.virtual_stages, " x micro-batches ",
               options.microbatches, "; the product must be at most ", kMost, ". Simulate fewer micro-batches."));
  }
  if (name == "zbv" && options.virtual_stages != 2) {
    refuse(str("virtual stages ", options.virtual_stages, "; it has exactly 2 stages on each rank. Ask for 2."));
  }
  if ((name == "1f1b" || name == "zb2p") && options.virtual_stages != 1) {
    refuse(str("virtual stages ", options.virtual_stages, "; it has one stage on each rank. Use ",
               name == "1f1b" ? "interleaved" : "zb1p", " for more."));
  }
}

/// Evaluation: the forwards of the same list. Recomputation: once more before every backward.
std::vector<Action> with_options(const std::vector<Action>& list, const ScheduleOptions& options) {
  std::vector<Action> result;
  std::vector<int> weights_left(static_cast<size_t>(options.ranks) * options.virtual_stages, options.microbatches);
  for (const Action& action : list) {
    if (options.forward_only && action.kind != ActionKind::kForward) continue;
    if (options.recompute && action.kind == ActionKind::kBackwardInput) {
      result.push_back({ActionKind::kRecompute, action.stage, action.microbatch});
    }
    result.push_back(action);
    if (action.kind == ActionKind::kBackwardWeight && --weights_left[action.stage] == 0 && options.reduce_grads) {
      result.push_back({ActionKind::kReduceGrads, action.stage});
    }
  }
  if (options.optimizer_step && !options.forward_only) {
    result.push_back({ActionKind::kOptimizerStep, list.front().stage});
  }
  return result;
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Name& name : kNames) names.emplace_back(name.name);
  return names;
}

int default_virtual_stages(std::string_view name) { return find_name(name).virtual_stages; }

Schedule make_compute_schedule(std::string_view name, const ScheduleOptions& options) {
  const Name& known = find_name(name);
  check_options(known.name, options);
  Schedule schedule;
  for (int rank = 0; rank < options.ranks; ++rank) {
    schedule.push_back(with_options(rank_actions(known.name, rank, options), options));
  }
  return schedule;
}

Schedule make_schedule(std::string_view name, const ScheduleOptions& options) {
  return add_communication(make_compute_schedule(name, options), find_name(name).splits_backward);
}

}  // namespace trireme::plan
