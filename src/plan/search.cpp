#include "plan/search.h"

#include <algorithm>
#include <cmath>

#include "plan/search_parts.h"
#include "plan/stage_split.h"

namespace trireme::plan {
namespace {

class Search {
 public:
  Search(const ModelNumbers& model, const MachineNumbers& machine, const TrainingNumbers& training, int64_t devices,
         const Constraints& constraints, const SearchOptions& options)
      : model_(model),
        machine_(machine),
        training_(training),
        devices_(devices),
        constraints_(constraints),
        options_(options),
        choices_(choices_of(constraints, !model.operators.empty())),
        work_(model, training),
        found_(result_, options) {
    limit_ = machine.memory_bytes * (1 - constraints.spare);
    result_.limit_bytes = limit_.value;
    for (int i = 0; i < model.num_kinds; ++i) has_experts_ = has_experts_ || model.kinds[i].experts > 0;
  }

  SearchResult run() {
    const std::vector<int64_t> tps = divisors(devices_);
    const auto tried =
        static_cast<double>(std::count_if(tps.begin(), tps.end(), [&](int64_t t) { return t <= machine_.domain; }));
    for (size_t i = 0; i < tps.size(); ++i) {
      const int64_t tp = tps[i];
      const std::vector<int64_t> pps = divisors(devices_ / tp);
      for (size_t j = 0; j < pps.size(); ++j) {
        const int64_t pp = pps[j];
        // Larger tensor-parallel degrees than a link domain are refused at once: those before it take the time.
        if (options_.progress && static_cast<double>(i) < tried)
          options_.progress((static_cast<double>(i) + static_cast<double>(j) / static_cast<double>(pps.size())) /
                            tried);
        for (const int64_t cp : divisors(devices_ / tp / pp))
          split({.dp = devices_ / tp / pp / cp, .tp = tp, .pp = pp, .cp = cp});
      }
    }
    found_.finish();
    return std::move(result_);
  }

 private:
  void split(Plan plan) {
    plan.sequence_parallel = plan.tp > 1;
    const auto per_batch = static_cast<int64_t>(choices_.size());
    const int64_t replica_batch = static_cast<int64_t>(training_.global_batch) / plan.dp;
    if (const std::optional<Rejected> reason = refuse_degrees(constraints_, model_, machine_.domain, plan))
      return found_.reject(*reason, per_batch);
    if (replica_batch < 1 || replica_batch * plan.dp != static_cast<int64_t>(training_.global_batch))
      return found_.reject(Rejected::kBatch, per_batch);
    for (const int64_t ep : has_experts_ ? divisors(plan.dp * plan.cp * plan.tp) : std::vector<int64_t>{1}) {
      plan.ep = ep;
      if (!allowed(constraints_.ep, constraints_.ep_within, ep)) {
        found_.reject(Rejected::kConstraint, per_batch);
        continue;
      }
      micro_batches(plan, replica_batch);
    }
  }

  void micro_batches(Plan plan, int64_t replica_batch) {
    plan.micro_batch = 1;
    if (const PlanFault fault = check_plan(model_, training_, plan); fault != PlanFault::kNone)
      return found_.reject(reason_of(fault), static_cast<int64_t>(choices_.size()));
    const std::vector<int64_t> sizes = divisors(replica_batch);
    fastest_ = std::numeric_limits<double>::infinity();
    for (const Choice& choice : choices_) {
      const ChoiceFault fault = fault_of(choice, model_, machine_, constraints_, plan);
      if (fault.same) continue;
      if (fault.reason) {
        found_.reject(*fault.reason, static_cast<int64_t>(sizes.size()));
        continue;
      }
      choice.set(plan);
      for (size_t i = 0; i < sizes.size(); ++i) {
        plan.micro_batch = sizes[i];
        if (!allowed(constraints_.micro_batch, constraints_.micro_batch_within, plan.micro_batch)) {
          found_.reject(Rejected::kConstraint, 1);
          continue;
        }
        if (const std::optional<Rejected> reason = refuse_micro_steps(plan, replica_batch / plan.micro_batch)) {
          found_.reject(*reason, 1);
          continue;
        }
        const Outcome outcome = choice.uneven ? try_uneven(plan) : try_plan(plan);
        if (outcome == Outcome::kTooLarge) {
          found_.reject(Rejected::kMemory, static_cast<int64_t>(sizes.size() - i));
          break;
        }
      }
    }
    keep_layout();
  }

  /// What check_plan() looks at of the micro-steps.
  static std::optional<Rejected> refuse_micro_steps(const Plan& plan, int64_t micro_steps) {
    if (plan.schedule.starts_with("zb")) {
      if (micro_steps < (plan.schedule == "zb1p" ? plan.pp : 2 * plan.pp - 1)) return Rejected::kSchedule;
    } else if (plan.virtual_stages > 1 && micro_steps % plan.pp != 0) {
      return Rejected::kInterleaving;
    }
    return std::nullopt;
  }

  enum class Outcome { kDone, kTooLarge };

  Outcome try_plan(const Plan& plan) {
    const PeakMemory peak = peak_memory(model_, machine_, training_, plan);
    Candidate candidate = {.plan = plan,
                           .seconds = 0,
                           .bytes = peak.parts.total().value,
                           .rank = peak.rank,
                           .limit = result_.limit_bytes,
                           .group = 0};
    if (candidate.bytes > candidate.limit) {
      found_.too_large(candidate);
      return Outcome::kTooLarge;
    }
    if (model_.operators.empty()) {
      const StageMachine stage{&machine_, &work_.get(machine_, plan)};
      if (options_.one_of_each_layout && hopeless(candidate.bytes, stage, plan)) {
        found_.reject(Rejected::kSlower, 1);
        return Outcome::kDone;
      }
      candidate.seconds = pipeline_step_time(model_, {&stage, 1}, training_, plan).total().value;
    } else {
      candidate.seconds = step_time(model_, machine_, training_, plan).total().value;
    }
    fastest_ = std::min(fastest_, candidate.seconds);
    found_.add(std::move(candidate));
    return Outcome::kDone;
  }

  /// Whether a plan can neither be the fastest of its degrees (or those degrees be among the ones that are kept) nor one of which no other is
  /// both faster and smaller: told without going through its stages.
  [[nodiscard]] bool hopeless(double bytes, const StageMachine& stage, const Plan& plan) const {
    const double bound = fastest_wanted();
    if (bound == std::numeric_limits<double>::infinity()) return false;
    const double least = least_step_time(model_, stage, training_, plan).value;
    return least > bound && found_.dominated(bytes, least);
  }

  /// A plan that is slower than this is no answer: of its degrees there is a faster one, or of others as many as are kept.
  [[nodiscard]] double fastest_wanted() const {
    return options_.one_of_each_layout ? std::min(fastest_, slowest_kept()) : fastest_;
  }

  /// Of the layouts that are among the best ones so far; infinite while there are fewer.
  [[nodiscard]] double slowest_kept() const {
    return kept_.size() < options_.keep ? std::numeric_limits<double>::infinity() : kept_.front();
  }

  /// Remembers the fastest plan of a layout that is done.
  void keep_layout() {
    if (!options_.one_of_each_layout || fastest_ >= slowest_kept()) return;
    kept_.push_back(fastest_);
    std::push_heap(kept_.begin(), kept_.end());
    if (kept_.size() <= options_.keep) return;
    std::pop_heap(kept_.begin(), kept_.end());
    kept_.pop_back();
  }

  /// The same with layers split by what they cost, where that is not the even split and could be an answer; what does not fit so is split by
  /// memory as well.
  Outcome try_uneven(Plan& plan) {
    plan.stage_layers.clear();
    const StageMachine stage{&machine_, &work_.get(machine_, plan)};
    if (least_step_time(model_, stage, training_, plan).value >= fastest_wanted()) {
      found_.reject(Rejected::kSlower, 1);
      return Outcome::kDone;
    }
    const Bytes limit = limit_;
    const bool even_fits = peak_memory(model_, machine_, training_, plan).parts.total() <= limit;
    const int pp = static_cast<int>(plan.pp);
    // Where a rank in the middle is too full no other split helps.
    if (!even_fits && stage_memory(model_, machine_, training_, plan, pp / 2).total() > limit)
      return Outcome::kTooLarge;
    const std::vector<Seconds> before = seconds_before(model_, stage, training_, plan);
    std::vector<SplitRank> ranks(static_cast<size_t>(plan.pp));
    for (SplitRank& rank : ranks) rank = {before, Seconds{}, static_cast<int>(model_.layers)};
    ranks.front().fixed += stage.work->embed;
    ranks.back().fixed += stage.work->head;
    plan.stage_layers = split_layers(ranks);
    if (peak_memory(model_, machine_, training_, plan).parts.total() <= limit) {
      const bool even = is_even(plan);  // another name of what was tried already
      return even ? Outcome::kDone : try_plan(plan);
    }
    plan.stage_layers.clear();
    for (int r = 0; r < pp; ++r) ranks[r].most = most_layers(model_, machine_, training_, plan, r, limit);
    plan.stage_layers = split_layers(ranks);
    if (plan.stage_layers.empty()) return Outcome::kTooLarge;
    return even_fits && is_even(plan) ? Outcome::kDone : try_plan(plan);
  }

  bool is_even(const Plan& plan) const {
    for (int r = 0; r < static_cast<int>(plan.pp); ++r) {
      const StageRange range = stage_layers(static_cast<int>(model_.layers), static_cast<int>(plan.pp), r);
      if (plan.stage_layers[r] != range.last - range.first) return false;
    }
    return true;
  }

  const ModelNumbers& model_;
  const MachineNumbers& machine_;
  const TrainingNumbers& training_;
  int64_t devices_;
  const Constraints& constraints_;
  const SearchOptions& options_;
  bool has_experts_ = false;
  Bytes limit_;               ///< that a rank may use
  double fastest_ = 0;        ///< of the degrees at hand, so far
  std::vector<double> kept_;  ///< seconds of the best layouts: a heap, slowest on top
  std::vector<Choice> choices_;
  WorkCache work_;
  SearchResult result_;
  Collector found_;
};

}  // namespace

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
    case PlanFault::kSchedule:
      return Rejected::kSchedule;
    case PlanFault::kShards:
      return Rejected::kShards;
    case PlanFault::kOperators:
      return Rejected::kOperators;
    default:
      return Rejected::kOther;
  }
}

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
    case Rejected::kChunks:
      return "layers no multiple of pp x virtual stages";
    case Rejected::kSchedule:
      return "zero bubble with fewer than pp micro-steps (zb2p, zbv: 2 pp - 1), or with recomputed layers";
    case Rejected::kOperators:
      return "a network described by operators is split by data only, without buckets, compression, shard ranks or "
             "offload";
    case Rejected::kAcrossHosts:
      return "tensor parallel beyond one link domain";
    case Rejected::kConstraint:
      return "excluded by a flag";
    case Rejected::kNotRunnable:
      return "not in Trireme's runtime yet";
    case Rejected::kShards:
      return "dp x cp no multiple of the ranks that share one copy";
    case Rejected::kShares:
      return "the degrees leave devices of one kind of hosts over";
    case Rejected::kOffload:
      return "the device's link to its host's memory is not known";
    case Rejected::kMemory:
      return "needs more memory than there is";
    case Rejected::kSlower:
      return "slower by its layers alone than plans that need no more memory";
    case Rejected::kOther:
      return "impossible degrees";
  }
  return "";
}

SearchResult search(const ModelNumbers& model, const MachineNumbers& machine, const TrainingNumbers& training,
                    int64_t devices, const Constraints& constraints, const SearchOptions& options) {
  return Search(model, machine, training, devices, constraints, options).run();
}

SearchResult search(const ModelNumbers& model, const MachineNumbers& machine, const TrainingNumbers& training,
                    int64_t devices, const Constraints& constraints, size_t keep) {
  SearchOptions options;
  options.keep = keep;
  return search(model, machine, training, devices, constraints, options);
}

}  // namespace trireme::plan
