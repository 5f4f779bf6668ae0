#include "cli/plan_found_text.h"

#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "base/str.h"
#include "plan/constants.h"
#include "plan/plan_text.h"

namespace trireme::cli {
namespace {

using plan::bytes_text;
using plan::Candidate;
using plan::SearchResult;
using plan::seconds_text;

void print_terms(const char* title, const std::vector<plan::Term>& terms, double total, std::string (*text)(double),
                 bool formulas) {
  std::printf("\n%s\n", title);
  for (const plan::Term& term : terms) {
    std::printf("  %-28s %10s %5.1f %%%s%s\n", term.name.c_str(), text(term.value).c_str(), 100 * term.value / total,
                formulas ? "  " : "", formulas ? term.formula.c_str() : "");
  }
}

void print_cost(const PlanFound& found, double seconds) {
  if (found.price <= 0) return;
  std::printf("  cost %.4g a step", found.cost(seconds));
  if (found.training.sequence > 0)
    std::printf(", %.4g for 1e12 tokens",
                found.cost(seconds) * 1e12 / found.training.global_batch / found.training.sequence);
  std::printf("  (%g for a device and hour)\n", found.price);
}

/// What of the plan is not Trireme's own.
void print_runnable(const plan::Plan& plan) {
  const std::vector<std::string> missing = not_runnable(plan);
  if (!missing.empty())
    std::printf("  not in Trireme's runtime yet: %s (--runnable leaves such plans out)\n", join(missing).c_str());
}

void print_buckets(const PlanFound& found) {
  if (found.buckets.empty()) return;
  const plan::BucketSize& best = found.buckets.front();
  std::string others;
  for (const int64_t mb : {4, 32, 256}) {
    for (const plan::BucketSize& size : found.buckets) {
      if (size.bytes == mb << 20 && size.bytes != best.bytes)
        others += str(others.empty() ? "" : ", ", mb, " MiB +", seconds_text(size.seconds - best.seconds));
    }
  }
  std::printf("  gradient buckets of %s (%s)\n", bytes_text(static_cast<double>(best.bytes)).c_str(), others.c_str());
}

void print_constants(const plan::Machine& machine) {
  std::printf("\nconstants\n");
  std::string of;
  for (const plan::NamedConstant& constant : plan::constants_of(machine)) {
    if (constant.of != of) std::printf("  %s\n", constant.of.c_str());
    of = constant.of;
    std::printf("    %-26s %10.4g  %s\n", constant.name.c_str(), constant.value, constant.source.c_str());
  }
}

/// Of unlike hosts: the parts of the kind that takes longest, and where memory is nearest to its limit.
void print_best_of_unlike(const PlanFound& found, const SearchFlags& flags) {
  const Candidate& best = found.result.best.front();
  const plan::MixedCost cost =
      mixed_cost(found.model, found.groups, found.training, best.plan, flags.constraints.spare);
  const double tokens = found.training.global_batch * std::max(1.0, found.training.sequence);
  std::printf("\n%s\n  step %s   %.0f %s/s   memory %s of the %s that may be used on pipeline rank %d of %s\n",
              describe(best.plan).c_str(), seconds_text(best.seconds).c_str(), tokens / best.seconds,
              found.training.sequence > 0 ? "tokens" : "samples", bytes_text(best.bytes).c_str(),
              bytes_text(best.limit).c_str(), best.rank,
              found.inputs.kinds[static_cast<size_t>(best.group)].machine.device.name.c_str());
  print_cost(found, best.seconds);
  print_runnable(best.plan);
  std::printf("\ntime of the step\n");
  for (const plan::NamedSeconds& part : named(cost.time)) {
    if (part.seconds > 0)
      std::printf("  %-28s %10s %5.1f %%\n", part.name, seconds_text(part.seconds).c_str(),
                  100 * part.seconds / best.seconds);
  }
  for (size_t i = 0; i < found.alone.size(); ++i) {
    const std::optional<Candidate>& alone = found.alone[i];
    if (!alone || alone->seconds >= best.seconds) continue;
    std::printf("\nthe %lld %s alone are faster: %s, %s\n", static_cast<long long>(found.groups[i].devices),
                found.inputs.kinds[i].machine.device.name.c_str(), seconds_text(alone->seconds).c_str(),
                describe(alone->plan).c_str());
  }
  std::printf("\nunmodelled: %s\n", kUnlikeUnmodelled);
}

void print_best(const PlanFound& found, const SearchFlags& flags) {
  if (!found.groups.empty()) return print_best_of_unlike(found, flags);
  const Candidate& best = found.result.best.front();
  const plan::Estimate e = found.estimate(best.plan);
  std::printf("\n%s\n", describe(best.plan).c_str());
  std::printf("  step %s (%s to %s)   %.0f %s/s   MFU %.1f %%   memory %s of %s on pipeline rank %d\n",
              seconds_text(e.step_seconds).c_str(), seconds_text(e.low_seconds).c_str(),
              seconds_text(e.high_seconds).c_str(), e.tokens_per_second,
              found.training.sequence > 0 ? "tokens" : "samples", 100 * e.mfu, bytes_text(e.peak_bytes).c_str(),
              bytes_text(found.machine.memory_bytes.value).c_str(), e.peak_rank);
  print_cost(found, e.step_seconds);
  print_buckets(found);
  print_runnable(best.plan);
  if (flags.explain == "constants") print_constants(found.inputs.machine);
  if (flags.explain != "memory")
    print_terms("time of the step", e.time, e.step_seconds, &seconds_text, flags.explain == "time");
  const plan::StageMemory& fullest = e.memory[static_cast<size_t>(e.peak_rank)];
  if (flags.explain == "memory") {
    for (const plan::StageMemory& stage : e.memory) {
      print_terms(str("memory of pipeline rank ", stage.stage_rank, ": ", bytes_text(stage.total())).c_str(),
                  stage.terms, stage.total(), &bytes_text, true);
    }
  } else if (flags.explain != "time") {
    print_terms(str("memory of the fullest rank, pipeline rank ", e.peak_rank).c_str(), fullest.terms, fullest.total(),
                &bytes_text, false);
  }
  for (const std::string& line : e.unmodelled) std::printf("\nunmodelled: %s", line.c_str());
  if (!e.unmodelled.empty()) std::printf("\n");
}

void print_rest(const PlanFound& found, const SearchFlags& flags) {
  const SearchResult& r = found.result;
  if (flags.pareto) {
    std::printf("\nless memory against less time (%zu plans)\n", r.pareto.size());
    for (const Candidate& c : r.pareto) {
      std::printf("  %10s %10s  %s\n", bytes_text(c.bytes).c_str(), seconds_text(c.seconds).c_str(),
                  describe(c.plan).c_str());
    }
  } else if (r.best.size() > 1) {
    const auto time = [&](const plan::Plan& plan) {
      return found.groups.empty() ? step_time(found.model, found.machine, found.training, plan)
                                  : mixed_cost(found.model, found.groups, found.training, plan, 0).time;
    };
    const plan::TimeParts fastest = time(r.best.front().plan);
    std::printf("\nthe next layouts lost by\n");
    for (size_t i = 1; i < r.best.size(); ++i) {
      const Candidate& c = r.best[i];
      std::printf("  %+5.1f %%  %s\n           %s: %s\n", 100 * (c.seconds / r.best.front().seconds - 1),
                  describe(c.plan).c_str(), join(changes(r.best.front().plan, c.plan)).c_str(),
                  why_slower(time(c.plan), fastest).c_str());
    }
  }
}

}  // namespace

void print_found(const PlanFound& found, const SearchFlags& flags) {
  std::printf("%s\n", describe(found.inputs).c_str());
  std::printf("the fastest of %lld plans, %lld of them costed, in %s\n",
              static_cast<long long>(found.result.considered), static_cast<long long>(found.result.costed),
              seconds_text(found.search_seconds).c_str());
  print_best(found, flags);
  if (found.fewer) {
    std::printf("\n%lld devices are faster than %lld: %s a step, %s\n", static_cast<long long>(found.fewer->devices),
                static_cast<long long>(found.inputs.devices), seconds_text(found.fewer->best.seconds).c_str(),
                describe(found.fewer->best.plan).c_str());
  }
  print_rest(found, flags);
  print_rejected(found);
}

void print_rejected(const PlanFound& found) {
  const SearchResult& r = found.result;
  int64_t all = 0;
  for (const int64_t number : r.rejected) all += number;
  std::printf("\nrejected %lld of %lld plans\n", static_cast<long long>(all), static_cast<long long>(r.considered));
  for (int i = 0; i < plan::kNumRejected; ++i) {
    const int64_t number = r.rejected[static_cast<size_t>(i)];
    if (number > 0)
      std::printf("  %10lld  %s\n", static_cast<long long>(number), text_of(static_cast<plan::Rejected>(i)));
  }
  if (r.best.empty() && !r.nearest) return;  // the error says it
  for (const std::string& line : found.impossible) std::printf("impossible: %s\n", line.c_str());
}

std::string nothing_fits(const PlanFound& found) {
  const SearchResult& r = found.result;
  if (r.nearest) {
    const double over = r.nearest->bytes - r.nearest->limit;
    const std::string of =
        found.groups.empty()
            ? std::string()
            : str(" of ", found.inputs.kinds[static_cast<size_t>(r.nearest->group)].machine.device.name);
    return str("[plan] nothing fits: the nearest plan (", describe(r.nearest->plan), ") needs ",
               bytes_text(r.nearest->bytes), " on pipeline rank ", r.nearest->rank, of, ", ", bytes_text(over), " (",
               static_cast<int64_t>(std::ceil(over)), " bytes) more than the ", bytes_text(r.nearest->limit),
               " that may be used. Use more or larger devices, or spare less with --spare.");
  }
  if (!found.impossible.empty()) {
    return str("[plan] no plan is possible on ", found.inputs.devices, " devices: ", join(found.impossible, "; "),
               ". Change the flag, or what it does not go with.");
  }
  // What a flag left out says least.
  int most = static_cast<int>(plan::Rejected::kConstraint);
  int64_t number = 0;
  for (int i = 0; i < plan::kNumRejected; ++i) {
    if (i == static_cast<int>(plan::Rejected::kConstraint) || r.rejected[static_cast<size_t>(i)] <= number) continue;
    most = i;
    number = r.rejected[static_cast<size_t>(i)];
  }
  return str("[plan] no plan is possible on ", found.inputs.devices, " devices: of ", r.considered, " ",
             r.rejected[static_cast<size_t>(most)], " have this fault: ", text_of(static_cast<plan::Rejected>(most)),
             ". Change the batch, the number of devices or the flags that exclude plans.");
}

}  // namespace trireme::cli
