// Valid schedules of many kinds, and small faults in them.
#include <algorithm>

#include "base/str.h"
#include "plan/schedule_oracle.h"

namespace trireme::plan {
namespace {

int below(std::mt19937_64& random, size_t n) { return static_cast<int>(random() % std::max<size_t>(n, 1)); }

/// Every other micro-batch goes out after its forward and comes back before its backward.
void add_offload(Schedule& schedule) {
  for (std::vector<Action>& list : schedule) {
    std::vector<Action> result;
    for (const Action& action : list) {
      if (action.kind == ActionKind::kBackwardInput && action.microbatch % 2 == 0) {
        result.push_back({ActionKind::kPrefetch, action.stage, action.microbatch});
      }
      result.push_back(action);
      if (action.kind == ActionKind::kForward && action.microbatch % 2 == 0) {
        result.push_back({ActionKind::kOffload, action.stage, action.microbatch});
      }
    }
    list = result;
  }
}

/// Weights of each stage gathered before its first and released after its last action.
void add_gather(Schedule& schedule, int stages) {
  for (std::vector<Action>& list : schedule) {
    for (int stage = 0; stage < stages; ++stage) {
      const auto works = [stage](const Action& a) { return is_compute(a.kind) && a.stage == stage; };
      const auto first = std::find_if(list.begin(), list.end(), works);
      if (first == list.end()) continue;
      list.insert(first, {ActionKind::kGatherParams, stage});
      const auto last = std::find_if(list.rbegin(), list.rend(), works);
      list.insert(last.base(), {ActionKind::kReleaseParams, stage});
    }
  }
}

/// First and last stage share a table; both ends of the sum stand before the optimizer step.
void add_tied(Schedule& schedule, int stages) {
  for (std::vector<Action>& list : schedule) {
    for (const auto& [stage, other] : {std::pair(0, stages - 1), std::pair(stages - 1, 0)}) {
      const bool here = std::any_of(list.begin(), list.end(),
                                    [s = stage](const Action& a) { return is_compute(a.kind) && a.stage == s; });
      if (!here) continue;
      Action tied{ActionKind::kReduceTied, stage};
      tied.peer_stage = other;
      const bool optimizer = !list.empty() && list.back().kind == ActionKind::kOptimizerStep;
      list.insert(list.end() - (optimizer ? 1 : 0), tied);
    }
  }
}

/// Messages that stand next to each other start together, as far as what they send is there: here all, for it precedes the first of them.
void batch_messages(Schedule& schedule) {
  for (std::vector<Action>& list : schedule) {
    int number = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!is_message(list[i].kind)) continue;
      const bool same = i > 0 && is_message(list[i - 1].kind);
      list[i].batch = same ? number : ++number;
    }
  }
}

/// Bounds at the schedule's own peaks: of stages, of ranks, or of both.
void bound_memory(SeededSchedule& seeded, uint64_t which) {
  const ScheduleStats stats = check_schedule(seeded.schedule, seeded.rules).value();
  if (which != 0) seeded.rules.stage_bounds = stats.stage_peak;
  if (which != 1) seeded.rules.rank_bounds = stats.rank_peak;
}

template <typename List>
void change_one(List& list, int at, std::mt19937_64& random, const ScheduleRules& rules) {
  Action& action = list[at];
  switch (below(random, 6)) {
    case 0:
      action.microbatch = below(random, rules.microbatches + 1);
      break;
    case 1:
      action.stage = below(random, rules.stages + 1);
      break;
    case 2:
      action.kind = static_cast<ActionKind>(below(random, static_cast<size_t>(ActionKind::kOptimizerStep) + 1));
      break;
    case 3:
      action.edge = below(random, rules.stages + 1) - 1;
      break;
    case 4:
      action.peer_stage = below(random, rules.stages + 2) - 1;
      break;
    default:
      action.batch = below(random, 4) - 1;
      break;
  }
}

}  // namespace

SeededSchedule seeded_schedule(uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<std::string> names = schedule_names();
  SeededSchedule result;
  const std::string name = names[below(random, names.size())];
  ScheduleOptions options;
  options.ranks = 1 + below(random, 4);
  options.microbatches = 1 + below(random, 7);
  if (name == "zbv") options.virtual_stages = 2;
  if (name == "gpipe" || name == "interleaved" || name == "zb1p") options.virtual_stages = 1 + below(random, 3);
  const uint64_t features = random();
  options.forward_only = features % 8 == 0;
  options.recompute = features >> 4 & 1;
  options.reduce_grads = features >> 5 & 1;
  options.optimizer_step = features >> 6 & 1;
  const bool skips = features >> 7 & 1;
  const bool offload = !options.forward_only && !options.recompute && (features >> 8) % 4 == 0;
  const bool gather = (features >> 10) % 4 == 0;
  result.rules.stages = options.ranks * options.virtual_stages;
  result.rules.microbatches = options.microbatches;
  result.rules.edges = chain_edges(result.rules.stages);
  if (skips && result.rules.stages > 2) {
    result.rules.edges.push_back({0, 2});
    result.rules.edges.push_back({0, result.rules.stages - 1});
  }
  result.schedule =
      add_communication(make_compute_schedule(name, options), name.substr(0, 2) == "zb", result.rules.edges);
  if (offload) add_offload(result.schedule);
  if (gather) add_gather(result.schedule, result.rules.stages);
  if (!options.forward_only && result.rules.stages > 1 && (features >> 12) % 4 == 0) {
    add_tied(result.schedule, result.rules.stages);
  }
  if ((features >> 14) % 2 == 0) batch_messages(result.schedule);
  if ((features >> 15) % 2 == 0) bound_memory(result, (features >> 16) % 3);
  result.name = str(name, " p", options.ranks, " v", options.virtual_stages, " m", options.microbatches,
                    options.forward_only ? " forward" : "", options.recompute ? " recompute" : "",
                    skips ? " skips" : "", offload ? " offload" : "", gather ? " gather" : "");
  return result;
}

void mutate(SeededSchedule& seeded, std::mt19937_64& random) {
  Schedule& schedule = seeded.schedule;
  // More often one than two than three.
  int changes = 1 + (below(random, 3) == 0 ? 1 : 0) + (below(random, 6) == 0 ? 1 : 0);
  for (; changes > 0; --changes) {
    std::vector<Action>& list = schedule[below(random, schedule.size())];
    if (list.empty()) continue;
    const int at = below(random, list.size());
    const int other = below(random, list.size());
    const int near = std::min<int>(at + 1 + below(random, 3), static_cast<int>(list.size()) - 1);
    switch (below(random, 14)) {
      case 0:
        std::swap(list[at], list[other]);
        break;
      case 1:
      case 2:
        std::swap(list[at], list[near]);
        break;
      case 3:  // moves down a little
        std::rotate(list.begin() + at, list.begin() + at + 1, list.begin() + near + 1);
        break;
      case 4:  // moves up a little
        std::rotate(list.begin() + at, list.begin() + near, list.begin() + near + 1);
        break;
      case 5:
        list.erase(list.begin() + at);
        break;
      case 6:
        list.insert(list.begin() + other, list[at]);
        break;
      case 7: {  // to another rank
        std::vector<Action>& target = schedule[below(random, schedule.size())];
        const Action moved = list[at];
        list.erase(list.begin() + at);
        target.insert(target.begin() + below(random, target.size() + 1), moved);
        break;
      }
      case 8:  // starts with its neighbours, or by itself
        if (list[at].batch >= 0) {
          list[at].batch = -1;
        } else {
          for (int i = at; i <= near; ++i) list[i].batch = 1000;
        }
        break;
      case 9:
        change_one(list, at, random, seeded.rules);
        break;
      default: {  // a message earlier or later: this is what makes circles
        const auto message =
            std::find_if(list.begin() + at, list.end(), [](const Action& a) { return is_message(a.kind); });
        if (message == list.end()) break;
        const auto end = message + std::min<ptrdiff_t>(list.end() - message, 2 + below(random, 5));
        if (random() % 2 == 0) {
          std::rotate(message, message + 1, end);
        } else {
          std::rotate(message, end - 1, end);
        }
        break;
      }
    }
  }
}

}  // namespace trireme::plan
