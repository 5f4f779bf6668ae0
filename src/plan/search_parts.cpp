#include "plan/search_parts.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace trireme::plan {

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

std::vector<int64_t> searched_virtual_stages() { return {1, 2, 3, 4, 5, 6, 8, 10, 12}; }

void Choice::set(Plan& plan) const {
  plan.recompute = recompute;
  plan.zero_stage = zero_stage;
  plan.virtual_stages = virtual_stages;
  plan.schedule = schedule;
  plan.stage_layers.clear();
  plan.bucket_bytes = bucket_bytes;
  plan.shard_ranks = shard_ranks;
  plan.compression = compression;
  plan.offload_optimizer = offload_optimizer;
  plan.offload_activations = offload_activations;
}

namespace {

/// Pipelines: schedule, chunks of a rank, and whether layers are split unevenly.
std::vector<Choice> pipelines(const Constraints& c) {
  const std::vector<int64_t> virtual_stages = c.virtual_stages.empty() ? searched_virtual_stages() : c.virtual_stages;
  std::vector<Choice> all;
  const auto wanted = [&](const char* name) { return allowed(c.schedule, std::string(name)); };
  const auto has = [&](int64_t v) {
    return std::find(virtual_stages.begin(), virtual_stages.end(), v) != virtual_stages.end();
  };
  const auto add = [&all](const char* name, int64_t v, bool uneven) {
    Choice choice;
    choice.schedule = name;
    choice.virtual_stages = v;
    choice.uneven = uneven;
    all.push_back(choice);
  };
  // Where there is no pipeline the first of these stands for all, whatever it is called.
  if (has(1) && (wanted("1f1b") || !wanted("interleaved"))) add("1f1b", 1, false);
  if (wanted("interleaved")) {
    for (const int64_t v : virtual_stages) {
      if (v > 1) add("interleaved", v, false);
    }
    if (has(1) && !wanted("1f1b")) add("1f1b", 1, false);
  }
  if (has(1) && wanted("1f1b") && !c.even_stages) add("1f1b", 1, true);
  for (const char* name : {"zb1p", "zb2p"}) {
    if (has(1) && wanted(name)) add(name, 1, false);
  }
  if (has(1) && wanted("zb1p") && !c.even_stages) add("zb1p", 1, true);
  if (has(2) && wanted("zbv")) add("zbv", 2, false);
  return all;
}

}  // namespace

std::vector<Choice> choices_of(const Constraints& c, bool operators) {
  const auto with_none = [](std::vector<int64_t> values) {
    values.insert(values.begin(), 0);
    return values;
  };
  std::vector<double> compressions = c.compression;
  compressions.insert(compressions.begin(), 1);
  std::vector<Choice> all;
  const std::vector<Choice> schedules = operators ? std::vector<Choice>(1) : pipelines(c);
  for (const int64_t bucket : c.bucket_bytes.empty() ? std::vector<int64_t>{0} : c.bucket_bytes) {
    for (const bool offload : {false, true}) {
      if (offload && !c.offload_optimizer) continue;
      for (const double compression : compressions) {
        for (const int64_t shards : with_none(c.shard_ranks)) {
          for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
            if (!allowed(c.recompute, recompute) || (operators && recompute != Recompute::kNone)) continue;
            for (int zero = 0; zero <= 3; ++zero) {
              if (!allowed(c.zero_stage, zero) || (shards > 0 && zero < 3)) continue;
              // ZeRO 3 gathers layer by layer, and what is sent of gradients is summed in parts: no buckets, no kept error.
              if ((compression < 1 && zero > 1) || (bucket > 0 && zero == 3 && c.bucket_bytes.front() != bucket))
                continue;
              for (Choice choice : schedules) {
                choice.recompute = recompute;
                choice.zero_stage = zero;
                choice.bucket_bytes = zero == 3 ? 0 : bucket;
                choice.shard_ranks = shards;
                choice.compression = compression;
                choice.offload_optimizer = offload;
                all.push_back(choice);
                // What went to the host comes back from there: nothing is left to recompute.
                if (!c.offload_activations || operators || recompute != Recompute::kNone) continue;
                choice.offload_activations = true;
                all.push_back(choice);
              }
            }
          }
        }
      }
    }
  }
  return all;
}

ChoiceFault fault_of(const Choice& choice, const ModelNumbers& model, const MachineNumbers& machine,
                     const Constraints& constraints, const Plan& degrees) {
  const int64_t replicas = degrees.dp * degrees.cp;
  const std::string_view schedule = choice.schedule;
  const bool zero_bubble = schedule.starts_with("zb");
  if (constraints.runnable && (choice.zero_stage > 0 || choice.compression < 1 || choice.offload_optimizer ||
                               choice.offload_activations || choice.recompute != Recompute::kNone)) {
    return {.reason = Rejected::kNotRunnable};
  }
  // Gradients of a network by operators are reduced as a whole, and nothing of it goes to the host.
  if (!model.operators.empty() && (choice.compression < 1 || choice.bucket_bytes > 0 || choice.shard_ranks > 0 ||
                                   choice.offload_optimizer || choice.offload_activations)) {
    return {.reason = Rejected::kOperators};
  }
  // Sharding what only one rank has, and a schedule where there is no pipeline, are other names of other plans.
  const int64_t first_bucket = constraints.bucket_bytes.empty() ? 0 : constraints.bucket_bytes.front();
  if (replicas == 1 && (choice.zero_stage > 0 || choice.compression < 1 || choice.bucket_bytes != first_bucket))
    return {.reason = {}, .same = true};
  if (degrees.pp == 1 && (choice.virtual_stages > 1 || zero_bubble || choice.uneven))
    return {.reason = {}, .same = true};
  if (choice.shard_ranks >= replicas && choice.shard_ranks > 0) return {.reason = {}, .same = true};
  if (choice.shard_ranks > 0 && replicas % choice.shard_ranks != 0) return {.reason = Rejected::kShards};
  if ((choice.offload_optimizer || choice.offload_activations) && !(machine.host_link.value > 0))
    return {.reason = Rejected::kOffload};
  const auto layers = static_cast<int64_t>(model.layers);
  const int64_t chunks = degrees.pp * choice.virtual_stages;
  if (layers > 0 && layers < chunks) return {.reason = Rejected::kLayers};
  // Embedding and head may take a place each.
  if (choice.virtual_stages > 1 && layers % chunks != 0 && (layers + 2) % chunks != 0)
    return {.reason = Rejected::kChunks};
  if (zero_bubble && (choice.recompute == Recompute::kFull ||
                      (choice.recompute == Recompute::kSelective && !machine.selective_is_attention))) {
    return {.reason = Rejected::kSchedule};
  }
  return {};
}

std::optional<Rejected> refuse_degrees(const Constraints& c, const ModelNumbers& model, int domain, const Plan& plan) {
  if (!allowed(c.dp, c.dp_within, plan.dp) || !allowed(c.tp, c.tp_within, plan.tp) ||
      !allowed(c.pp, c.pp_within, plan.pp) || !allowed(c.cp, c.cp_within, plan.cp)) {
    return Rejected::kConstraint;
  }
  if (c.runnable && plan.tp * plan.pp * plan.cp > 1) return Rejected::kNotRunnable;
  if (!model.operators.empty()) {
    if (plan.tp * plan.pp * plan.cp > 1) return Rejected::kOperators;
    return std::nullopt;
  }
  if (!c.tp_across_hosts && plan.tp > domain) return Rejected::kAcrossHosts;
  if (static_cast<double>(plan.pp) > model.layers) return Rejected::kLayers;
  return std::nullopt;
}

const MicroStepWork& WorkCache::get(const MachineNumbers& machine, const Plan& plan) {
  const Key key{&machine, plan.tp, plan.cp, plan.ep, plan.micro_batch};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  if (known_.size() >= kMost) known_.clear();
  return known_.emplace(key, micro_step_work(model_, machine, training_, plan)).first->second;
}

namespace {

bool better(const Candidate& a, const Candidate& b) {
  return std::tie(a.seconds, a.bytes) < std::tie(b.seconds, b.bytes);
}

}  // namespace

void Collector::add(Candidate&& candidate) {
  ++result_.considered;
  ++result_.costed;
  // The plans of the front that need no more: the largest of them is the fastest.
  if (!dominated(candidate.bytes, candidate.seconds)) {
    auto worse = pareto_.lower_bound(candidate.bytes);
    while (worse != pareto_.end() && worse->second.seconds >= candidate.seconds) worse = pareto_.erase(worse);
    pareto_.emplace(candidate.bytes, candidate);
  }
  if (!options_.one_of_each_layout) {
    all_.push_back(std::move(candidate));
    return;
  }
  const Plan& p = candidate.plan;
  const auto [place, added] = by_layout_.try_emplace({p.dp, p.tp, p.pp, p.cp, p.ep}, all_.size());
  if (added)
    all_.push_back(std::move(candidate));
  else if (better(candidate, all_[place->second]))
    all_[place->second] = std::move(candidate);
}

void Collector::reject(Rejected reason, int64_t plans) {
  result_.rejected[static_cast<size_t>(reason)] += plans;
  result_.considered += plans;
}

bool Collector::dominated(double bytes, double seconds) const {
  const auto above = pareto_.upper_bound(bytes);
  return above != pareto_.begin() && std::prev(above)->second.seconds <= seconds;
}

void Collector::too_large(const Candidate& candidate) {
  const auto over = [](const Candidate& c) { return c.bytes - c.limit; };
  if (!result_.nearest || over(candidate) < over(*result_.nearest)) result_.nearest = candidate;
}

void Collector::finish() {
  // Equal times are ordered by memory, then as they came, simplest first.
  std::vector<size_t> order(all_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return better(all_[a], all_[b]); });
  for (size_t i = 0; i < order.size() && result_.best.size() < options_.keep; ++i) {
    const Candidate& candidate = all_[order[i]];
    // Where attention is fused, for example, to recompute it is to recompute nothing.
    if (i > 0 && candidate.seconds == all_[order[i - 1]].seconds && candidate.bytes == all_[order[i - 1]].bytes)
      continue;
    result_.best.push_back(candidate);
  }
  for (auto& [bytes, candidate] : pareto_) result_.pareto.push_back(std::move(candidate));
}

}  // namespace trireme::plan
