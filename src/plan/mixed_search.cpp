#include "plan/mixed_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/search_parts.h"
#include "plan/stage_split.h"

namespace trireme::plan {
namespace {

/// The network over which replicas on all kinds reduce together: the slowest of each part.
MachineNumbers joint_of(const std::vector<DeviceGroup>& groups) {
  MachineNumbers joint = groups.front().machine;
  for (const DeviceGroup& group : groups) {
    const MachineNumbers& m = group.machine;
    joint.link = std::min(joint.link, m.link);
    joint.link_latency = std::max(joint.link_latency, m.link_latency);
    joint.domain = std::min(joint.domain, m.domain);
    if (m.network / m.per_host < joint.network / joint.per_host) {
      joint.network = m.network;
      joint.per_host = m.per_host;
    }
  }
  return joint;
}

/// The groups' machines with their common network, for plans with replicas on each.
std::vector<MachineNumbers> joined(const std::vector<DeviceGroup>& groups, const MachineNumbers& joint) {
  std::vector<MachineNumbers> machines;
  for (const DeviceGroup& group : groups) {
    machines.push_back(group.machine);
    machines.back().replicas = &joint;
  }
  return machines;
}

TrainingNumbers with_micro_steps(const TrainingNumbers& training, const Plan& plan, int64_t steps) {
  TrainingNumbers own = training;
  own.global_batch = static_cast<double>(steps * plan.micro_batch * plan.dp);
  return own;
}

std::vector<StageMachine> machines_of(const std::vector<DeviceGroup>& groups, const Plan& plan,
                                      const std::vector<MicroStepWork>& work) {
  std::vector<StageMachine> machines;
  for (const int group : plan.stage_group) machines.push_back({&groups[group].machine, &work[group]});
  return machines;
}

std::vector<MicroStepWork> work_of(const ModelNumbers& model, const std::vector<DeviceGroup>& groups,
                                   const TrainingNumbers& training, const Plan& plan) {
  std::vector<MicroStepWork> work;
  for (const DeviceGroup& group : groups) work.push_back(micro_step_work(model, group.machine, training, plan));
  return work;
}

/// Keeps the rank that comes nearest to its limit.
void add_rank(MixedCost& cost, Bytes bytes, Bytes limit, int rank, int group) {
  if (cost.limit > 0 && bytes / limit <= cost.bytes / cost.limit) return;
  cost.bytes = bytes.value;
  cost.limit = limit.value;
  cost.rank = rank;
  cost.group = group;
}

}  // namespace

MixedCost mixed_cost(const ModelNumbers& model, const std::vector<DeviceGroup>& groups, const TrainingNumbers& training,
                     const Plan& plan, double spare) {
  MixedCost cost;
  const auto limit = [&](int group) { return groups[group].machine.memory_bytes * (1 - spare); };
  if (!plan.stage_group.empty()) {
    const std::vector<MicroStepWork> work = work_of(model, groups, training, plan);
    cost.time = pipeline_step_time(model, machines_of(groups, plan, work), training, plan);
    for (int rank = 0; rank < static_cast<int>(plan.pp); ++rank) {
      const int group = plan.stage_group[rank];
      add_rank(cost, stage_memory(model, groups[group].machine, training, plan, rank).total(), limit(group), rank,
               group);
    }
    cost.slowest = cost.group;
    return cost;
  }
  const MachineNumbers joint = joint_of(groups);
  const std::vector<MachineNumbers> machines = joined(groups, joint);
  Seconds slowest{-1};
  for (const ReplicaShare& share : plan.replicas) {
    const TrainingNumbers own = with_micro_steps(training, plan, share.micro_steps);
    const TimeParts time = step_time(model, machines[share.group], own, plan);
    if (time.total() > slowest) {
      slowest = time.total();
      cost.time = time;
      cost.slowest = share.group;
    }
    const PeakMemory peak = peak_memory(model, machines[share.group], own, plan);
    add_rank(cost, peak.parts.total(), limit(share.group), peak.rank, share.group);
  }
  return cost;
}

std::vector<ReplicaShare> share_micro_steps(const std::vector<double>& first, const std::vector<double>& next,
                                            const std::vector<int64_t>& count, int64_t steps) {
  const size_t kinds = count.size();
  // What a kind has done after `seconds`; one more micro-step is never done by rounding alone.
  const auto done = [&](size_t k, double seconds) {
    return seconds < first[k] ? int64_t{0}
                              : std::min(steps, 1 + static_cast<int64_t>((seconds - first[k]) / next[k] + 1e-9));
  };
  const auto enough = [&](double seconds) {
    int64_t sum = 0;
    for (size_t k = 0; k < kinds; ++k) sum += count[k] * done(k, seconds);
    return sum >= steps;
  };
  double low = 0, high = 0;
  for (size_t k = 0; k < kinds; ++k) high = std::max(high, first[k] + next[k] * static_cast<double>(steps));
  for (int i = 0; i < 100 && high - low > 1e-12 * high; ++i) {
    const double middle = (low + high) / 2;
    (enough(middle) ? high : low) = middle;
  }
  std::vector<ReplicaShare> shares(kinds);
  int64_t over = -steps;
  for (size_t k = 0; k < kinds; ++k) {
    shares[k] = {.group = static_cast<int>(k), .count = count[k], .micro_steps = done(k, high), .shorter = 0};
    over += count[k] * shares[k].micro_steps;
  }
  // Those that end last give back first.
  while (over > 0) {
    size_t last = 0;
    double latest = -1;
    for (size_t k = 0; k < kinds; ++k) {
      const double end = first[k] + next[k] * static_cast<double>(shares[k].micro_steps - 1);
      if (shares[k].shorter == 0 && shares[k].micro_steps > 0 && end > latest) {
        latest = end;
        last = k;
      }
    }
    if (latest < 0) return {};
    const int64_t back = std::min(over, count[last]);
    over -= back;
    shares[last].shorter = back;
    if (back == count[last]) {
      --shares[last].micro_steps;
      shares[last].shorter = 0;
    }
  }
  for (const ReplicaShare& share : shares) {
    if (share.micro_steps < 1 || share.micro_steps - (share.shorter > 0 ? 1 : 0) < 1) return {};
  }
  return shares;
}

namespace {

class MixedSearch {
 public:
  MixedSearch(const ModelNumbers& model, const std::vector<DeviceGroup>& groups, const TrainingNumbers& training,
              const Constraints& constraints, const SearchOptions& options)
      : model_(model),
        groups_(groups),
        training_(training),
        constraints_(constraints),
        joint_(joint_of(groups)),
        machines_(joined(groups, joint_)),
        found_(result_, options) {
    result_.limit_bytes = groups.front().machine.memory_bytes.value * (1 - constraints.spare);
    for (const Choice& choice : choices_of(constraints, !model.operators.empty())) {
      // Interleaving and V would need shares that are multiples of pp, and chunks of unlike speed.
      if (choice.virtual_stages == 1) (choice.uneven ? through_ : beside_).push_back(choice);
    }
  }

  SearchResult run() {
    int64_t common = 0;
    for (const DeviceGroup& group : groups_) common = std::gcd(common, group.devices);
    for (const int64_t tp : divisors(common)) {
      for (const int64_t cp : divisors(common / tp)) {
        for (const int64_t other : divisors(common / tp / cp)) {
          beside(tp, cp, other);
          through(tp, cp, other);
        }
      }
    }
    found_.finish();
    return std::move(result_);
  }

 private:
  bool refused(const Plan& plan, const std::vector<Choice>& choices) {
    const auto number = static_cast<int64_t>(choices.size());
    std::optional<Rejected> reason = refuse_degrees(constraints_, model_, joint_.domain, plan);
    if (!reason && !allowed(constraints_.ep, constraints_.ep_within, plan.ep)) reason = Rejected::kConstraint;
    if (reason) found_.reject(*reason, number);
    return reason.has_value();
  }

  template <typename Try>
  void each(Plan plan, const std::vector<Choice>& choices, int64_t batch, const Try& attempt) {
    if (batch < 1) return found_.reject(Rejected::kBatch, static_cast<int64_t>(choices.size()));
    const std::vector<int64_t> sizes = divisors(batch);
    for (const Choice& choice : choices) {
      const ChoiceFault fault = fault_of(choice, model_, groups_.front().machine, constraints_, plan);
      // Pipelines through all kinds have no even name.
      if (fault.same) continue;
      if (fault.reason) {
        found_.reject(*fault.reason, static_cast<int64_t>(sizes.size()));
        continue;
      }
      choice.set(plan);
      for (const int64_t size : sizes) {
        plan.micro_batch = size;
        if (allowed(constraints_.micro_batch, constraints_.micro_batch_within, size))
          attempt(plan);
        else
          found_.reject(Rejected::kConstraint, 1);
      }
    }
  }

  /// Whole replicas on every kind.
  void beside(int64_t tp, int64_t cp, int64_t pp) {
    const int64_t unit = tp * cp * pp;
    std::vector<int64_t> count;
    for (const DeviceGroup& group : groups_) count.push_back(group.devices / unit);
    Plan plan = {.dp = std::accumulate(count.begin(), count.end(), int64_t{0}), .tp = tp, .pp = pp, .cp = cp};
    plan.sequence_parallel = tp > 1;
    if (refused(plan, beside_)) return;
    each(plan, beside_, static_cast<int64_t>(training_.global_batch), [&](Plan& tried) {
      const int64_t steps = static_cast<int64_t>(training_.global_batch) / tried.micro_batch;
      if (steps < tried.dp) return found_.reject(Rejected::kBatch, 1);
      std::vector<double> first, next;
      const int64_t least = tried.schedule.starts_with("zb") ? 2 * pp - 1 : 1;
      for (const MachineNumbers& machine : machines_) {
        const auto seconds = [&](int64_t n) {
          return step_time(model_, machine, with_micro_steps(training_, tried, n), tried).total().value;
        };
        if (const PlanFault fault = check_plan(model_, with_micro_steps(training_, tried, least), tried);
            fault != PlanFault::kNone) {
          return found_.reject(reason_of(fault), 1);
        }
        const double one = seconds(least);
        next.push_back(seconds(least + 1) - one);
        first.push_back(one - static_cast<double>(least - 1) * next.back());
      }
      tried.replicas = share_micro_steps(first, next, count, steps);
      if (tried.replicas.empty()) return found_.reject(Rejected::kShares, 1);
      for (const ReplicaShare& share : tried.replicas) {
        if (share.micro_steps - (share.shorter > 0 ? 1 : 0) < least) return found_.reject(Rejected::kSchedule, 1);
      }
      add(tried);
    });
  }

  /// Pipelines whose stages stand on all kinds, each with `dp` replicas.
  void through(int64_t tp, int64_t cp, int64_t dp) {
    const int64_t width = tp * cp * dp;
    Plan plan = {.dp = dp, .tp = tp, .pp = 0, .cp = cp};
    plan.sequence_parallel = tp > 1;
    for (const bool reversed : {false, true}) {
      plan.stage_group.clear();
      for (size_t i = 0; i < groups_.size(); ++i) {
        const size_t group = reversed ? groups_.size() - 1 - i : i;
        plan.stage_group.insert(plan.stage_group.end(), static_cast<size_t>(groups_[group].devices / width),
                                static_cast<int>(group));
      }
      plan.pp = static_cast<int64_t>(plan.stage_group.size());
      if (refused(plan, through_)) continue;
      const auto batch = static_cast<int64_t>(training_.global_batch);
      each(plan, through_, batch % dp == 0 ? batch / dp : 0, [&](Plan& tried) {
        if (const PlanFault fault = check_plan(model_, training_, tried); fault != PlanFault::kNone)
          return found_.reject(reason_of(fault), 1);
        split(tried);
        if (tried.stage_layers.empty()) return found_.reject(Rejected::kMemory, 1);
        add(tried);
        tried.stage_layers.clear();
      });
    }
  }

  void split(Plan& plan) const {
    const std::vector<MicroStepWork> work = work_of(model_, groups_, training_, plan);
    std::vector<std::vector<Seconds>> before;
    for (size_t g = 0; g < groups_.size(); ++g)
      before.push_back(seconds_before(model_, {&groups_[g].machine, &work[g]}, training_, plan));
    std::vector<SplitRank> ranks(static_cast<size_t>(plan.pp));
    for (int r = 0; r < static_cast<int>(plan.pp); ++r) {
      const MachineNumbers& machine = groups_[plan.stage_group[r]].machine;
      ranks[r] = {before[plan.stage_group[r]], Seconds{},
                  most_layers(model_, machine, training_, plan, r, machine.memory_bytes * (1 - constraints_.spare))};
    }
    ranks.front().fixed += work[plan.stage_group.front()].embed;
    ranks.back().fixed += work[plan.stage_group.back()].head;
    plan.stage_layers = split_layers(ranks);
  }

  void add(const Plan& plan) {
    const MixedCost cost = mixed_cost(model_, groups_, training_, plan, constraints_.spare);
    Candidate candidate = {.plan = plan,
                           .seconds = cost.time.total().value,
                           .bytes = cost.bytes,
                           .rank = cost.rank,
                           .limit = cost.limit,
                           .group = cost.group};
    if (cost.bytes > cost.limit) {
      found_.too_large(candidate);
      return found_.reject(Rejected::kMemory, 1);
    }
    found_.add(std::move(candidate));
  }

  const ModelNumbers& model_;
  const std::vector<DeviceGroup>& groups_;
  const TrainingNumbers& training_;
  const Constraints& constraints_;
  MachineNumbers joint_;
  std::vector<MachineNumbers> machines_;
  std::vector<Choice> beside_, through_;
  SearchResult result_;
  Collector found_;
};

}  // namespace

SearchResult search_mixed(const ModelNumbers& model, const std::vector<DeviceGroup>& groups,
                          const TrainingNumbers& training, const Constraints& constraints,
                          const SearchOptions& options) {
  return MixedSearch(model, groups, training, constraints, options).run();
}

}  // namespace trireme::plan
