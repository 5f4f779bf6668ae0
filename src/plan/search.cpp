#include "plan/search.h"

#include <algorithm>
#include <cmath>

namespace trireme::plan {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> low;
  std::vector<int64_t> high;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(d);
    if (d * d != number) high.push_back(number / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

template <typename T>
bool allowed(const std::vector<T>& values, T value) {
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

Rejected reason_of(PlanFault fault) {
  switch (fault) {
    case PlanFault::kHeads:
    case PlanFault::kWidth:
      return Rejected::kHeads;
    case PlanFault::kLayers:
      return Rejected::kLayers;
    case PlanFault::kBatch:
      return Rejected::kBatch;
    case PlanFault::kSequence:
    case PlanFault::kPosition:
      return Rejected::kSequence;
    case PlanFault::kExperts:
      return Rejected::kExperts;
    case PlanFault::kInterleaving:
      return Rejected::kInterleaving;
    default:
      return Rejected::kOther;
  }
}

class Search {
 public:
  Search(const ModelNumbers& model, const MachineNumbers& machine, const TrainingNumbers& training, int64_t devices,
         const Constraints& constraints, size_t keep)
      : model_(model),
        machine_(machine),
        training_(training),
        devices_(devices),
        constraints_(constraints),
        keep_(keep) {
    result_.limit_bytes = machine.memory_bytes * (1 - constraints.spare);
    has_experts_ = false;
    for (int i = 0; i < model.num_kinds; ++i) has_experts_ = has_experts_ || model.kinds[i].experts > 0;
    options_ = choices();
  }

  SearchResult run() {
    for (const int64_t tp : divisors(devices_)) {
      for (const int64_t pp : divisors(devices_ / tp)) {
        for (const int64_t cp : divisors(devices_ / tp / pp))
          split({.dp = devices_ / tp / pp / cp, .tp = tp, .pp = pp, .cp = cp});
      }
    }
    finish();
    return std::move(result_);
  }

 private:
  /// What is chosen beside degrees and micro-batch.
  struct Choice {
    Recompute recompute;
    int zero_stage;
    int64_t virtual_stages;
  };

  std::vector<Choice> choices() const {
    std::vector<Choice> all;
    std::vector<int64_t> virtual_stages = constraints_.virtual_stages;
    if (virtual_stages.empty()) virtual_stages = {1, 2, 3, 4, 5, 6, 8, 10, 12};
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      if (!allowed(constraints_.recompute, recompute)) continue;
      for (int zero = 0; zero <= 3; ++zero) {
        if (!allowed(constraints_.zero_stage, zero)) continue;
        for (const int64_t v : virtual_stages) all.push_back({recompute, zero, v});
      }
    }
    return all;
  }

  void reject(Rejected reason, int64_t plans) {
    result_.rejected[static_cast<size_t>(reason)] += plans;
    result_.considered += plans;
  }

  /// Why no plan with these degrees can be run, before micro-batch and the rest are looked at.
  std::optional<Rejected> refuse(const Plan& plan) const {
    const Constraints& c = constraints_;
    if (!allowed(c.dp, plan.dp) || !allowed(c.tp, plan.tp) || !allowed(c.pp, plan.pp) || !allowed(c.cp, plan.cp))
      return Rejected::kConstraint;
    if ((c.max_tp > 0 && plan.tp > c.max_tp) || (c.max_pp > 0 && plan.pp > c.max_pp) ||
        (c.max_cp > 0 && plan.cp > c.max_cp)) {
      return Rejected::kConstraint;
    }
    if (c.runnable && plan.tp * plan.pp * plan.cp > 1) return Rejected::kNotRunnable;
    if (!c.tp_across_hosts && plan.tp > machine_.domain) return Rejected::kAcrossHosts;
    if (static_cast<double>(plan.pp) > model_.layers) return Rejected::kLayers;
    return std::nullopt;
  }

  void split(Plan plan) {
    plan.sequence_parallel = plan.tp > 1;
    const auto per_batch = static_cast<int64_t>(options_.size());
    const int64_t replica_batch = static_cast<int64_t>(training_.global_batch) / plan.dp;
    if (const std::optional<Rejected> reason = refuse(plan)) return reject(*reason, per_batch);
    if (replica_batch < 1 || replica_batch * plan.dp != static_cast<int64_t>(training_.global_batch))
      return reject(Rejected::kBatch, per_batch);
    for (const int64_t ep : has_experts_ ? divisors(plan.dp * plan.cp * plan.tp) : std::vector<int64_t>{1}) {
      plan.ep = ep;
      if (!allowed(constraints_.ep, ep)) {
        reject(Rejected::kConstraint, per_batch);
        continue;
      }
      micro_batches(plan, replica_batch);
    }
  }

  void micro_batches(Plan plan, int64_t replica_batch) {
    plan.micro_batch = 1;
    plan.virtual_stages = 1;
    if (const PlanFault fault = check_plan(model_, training_, plan); fault != PlanFault::kNone) {
      return reject(reason_of(fault), static_cast<int64_t>(options_.size()));
    }
    const std::vector<int64_t> sizes = divisors(replica_batch);
    for (const Choice& choice : options_) {
      plan.recompute = choice.recompute;
      plan.zero_stage = choice.zero_stage;
      plan.virtual_stages = choice.virtual_stages;
      plan.schedule = plan.virtual_stages > 1 ? "interleaved" : "1f1b";
      if (constraints_.runnable && plan.zero_stage > 0) {
        reject(Rejected::kNotRunnable, 1);
        continue;
      }
      // Sharding what only one rank has, and interleaving where there is no pipeline, are other names of other plans.
      if ((plan.zero_stage > 0 && plan.dp * plan.cp == 1) || (plan.virtual_stages > 1 && plan.pp == 1)) continue;
      for (size_t i = 0; i < sizes.size(); ++i) {
        plan.micro_batch = sizes[i];
        if (!allowed(constraints_.micro_batch, plan.micro_batch)) {
          reject(Rejected::kConstraint, 1);
          continue;
        }
        if (const PlanFault fault = check_plan(model_, training_, plan); fault != PlanFault::kNone) {
          reject(reason_of(fault), 1);
          continue;
        }
        const bool several = plan.micro_batch < replica_batch;
        if ((plan.zero_stage > 1 && plan.pp > 1) || (plan.zero_stage == 2 && several)) {
          reject(Rejected::kEveryMicroStep, 1);
          continue;
        }
        if (!fits(plan)) {
          reject(Rejected::kMemory, static_cast<int64_t>(sizes.size() - i));
          break;
        }
        cost(plan);
      }
    }
  }

  bool fits(const Plan& plan) {
    peak_ = peak_memory(model_, machine_, training_, plan);
    if (peak_.parts.total() <= result_.limit_bytes) return true;
    if (!result_.nearest || peak_.parts.total() < result_.nearest->bytes) {
      result_.nearest = {.plan = plan, .seconds = 0, .bytes = peak_.parts.total(), .rank = peak_.rank};
    }
    return false;
  }

  void cost(const Plan& plan) {
    ++result_.considered;
    ++result_.costed;
    const Candidate candidate = {plan, step_time(model_, machine_, training_, plan).total(), peak_.parts.total(),
                                 peak_.rank};
    all_.push_back({candidate.seconds, candidate.bytes, static_cast<uint32_t>(plans_.size())});
    plans_.push_back(candidate);
  }

  void finish() {
    // Equal times are ordered by memory, so that the answer does not depend on the order of the enumeration.
    std::sort(all_.begin(), all_.end(), [](const Point& a, const Point& b) {
      return std::tie(a.seconds, a.bytes, a.index) < std::tie(b.seconds, b.bytes, b.index);
    });
    for (size_t i = 0; i < all_.size() && result_.best.size() < keep_; ++i) {
      // Where attention is fused, for example, to recompute it is to recompute nothing.
      if (i > 0 && all_[i].seconds == all_[i - 1].seconds && all_[i].bytes == all_[i - 1].bytes) continue;
      result_.best.push_back(plans_[all_[i].index]);
    }
    double least = std::numeric_limits<double>::infinity();
    for (const Point& point : all_) {
      if (point.bytes >= least) continue;
      least = point.bytes;
      result_.pareto.push_back(plans_[point.index]);
    }
    std::reverse(result_.pareto.begin(), result_.pareto.end());
  }

  struct Point {
    double seconds, bytes;
    uint32_t index;
  };

  const ModelNumbers& model_;
  const MachineNumbers& machine_;
  const TrainingNumbers& training_;
  int64_t devices_;
  const Constraints& constraints_;
  size_t keep_;
  bool has_experts_ = false;
  std::vector<Choice> options_;
  PeakMemory peak_;
  std::vector<Point> all_;
  std::vector<Candidate> plans_;
  SearchResult result_;
};

}  // namespace

const char* text_of(Rejected reason) {
  switch (reason) {
    case Rejected::kHeads:
      return "heads or feed-forward width no multiple of tp";
    case Rejected::kLayers:
      return "fewer layers than pipeline stages";
    case Rejected::kBatch:
      return "global batch no multiple of micro-batch x dp";
    case Rejected::kSequence:
      return "sequence no multiple of cp x tp, or longer than the model's positions";
    case Rejected::kExperts:
      return "ep does not divide the experts or dp x cp x tp";
    case Rejected::kInterleaving:
      return "micro-steps no multiple of pp, which interleaving needs";
    case Rejected::kAcrossHosts:
      return "tensor parallel beyond one link domain";
    case Rejected::kConstraint:
      return "excluded by a flag";
    case Rejected::kNotRunnable:
      return "not in Trireme's runtime yet";
    case Rejected::kEveryMicroStep:
      return "ZeRO 2 with several micro-steps, or ZeRO 2 and 3 with a pipeline: gradients would be reduced in each "
             "micro-step";
    case Rejected::kMemory:
      return "needs more memory than there is";
    case Rejected::kOther:
      return "impossible degrees";
  }
  return "";
}

SearchResult search(const ModelNumbers& model, const MachineNumbers& machine, const TrainingNumbers& training,
                    int64_t devices, const Constraints& constraints, size_t keep) {
  return Search(model, machine, training, devices, constraints, keep).run();
}

}  // namespace trireme::plan
