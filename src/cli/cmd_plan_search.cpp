// `trireme plan --model ... --cluster ...`: the fastest plan, why the next ones lost, and what was rejected.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/str.h"
#include "cli/cmd_plan.h"
#include "cli/flag_errors.h"
#include "cli/plan_found.h"
#include "cli/plan_inputs.h"
#include "cli/progress_bar.h"
#include "plan/impossible_values.h"
#include "plan/mixed_search.h"
#include "plan/plan_text.h"
#include "plan/search.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

using plan::bytes_text;
using plan::Candidate;
using plan::Constraints;
using plan::Estimate;
using plan::SearchResult;
using plan::seconds_text;

struct SearchFlags {
  PlanFlags what;
  Constraints constraints;
  std::vector<std::string> recompute;
  double spare_percent = 10;
  size_t top = 4;
  bool pareto = false, as_json = false;
  std::vector<int64_t> bucket_mb;
  std::string explain;
  double price = 0;
};

void add_search_flags(CLI::App& app, SearchFlags& f) {
  add_plan_flags(app, f.what);
  const auto degree = [&app](const char* name, std::vector<int64_t>& values, const char* text) {
    app.add_option(name, values, text)
        ->delimiter(',')
        ->check(whole_number(1, 1'000'000'000))
        ->group("What may be searched (one value fixes it; a list: 1,2,4)");
  };
  Constraints& c = f.constraints;
  degree("--dp", c.dp, "data-parallel degrees");
  degree("--tp", c.tp, "tensor-parallel degrees");
  degree("--pp", c.pp, "pipeline degrees");
  degree("--cp", c.cp, "context-parallel degrees");
  degree("--ep", c.ep, "expert-parallel degrees");
  degree("--micro-batch", c.micro_batch, "samples of one replica in one forward");
  degree("--virtual-stages", c.virtual_stages, "model chunks of one pipeline rank; 1 = not interleaved");
  const char* const limits = "Limits";
  app.add_option("--zero", c.zero_stage, "ZeRO stages: 0 none, 1 optimizer state, 2 and gradients, 3 and weights")
      ->delimiter(',')
      ->check(whole_number(0, 3))
      ->group(limits);
  app.add_option("--recompute", f.recompute, "none, selective, full")
      ->delimiter(',')
      ->check(one_of({"none", "selective", "full"}))
      ->group(limits);
  app.add_flag("--even-stages", c.even_stages,
               "split the layers evenly over the pipeline, as programs do that cannot be told otherwise")
      ->group(limits);
  app.add_option("--schedule", c.schedule, "1f1b, interleaved, zb1p, zb2p, zbv; default: all")
      ->delimiter(',')
      ->check(one_of({"1f1b", "interleaved", "zb1p", "zb2p", "zbv"}))
      ->group(limits);
  app.add_option("--max-tp", c.max_tp, "no larger tensor-parallel degree")
      ->check(whole_number(1, 1'000'000'000))
      ->group(limits);
  app.add_option("--max-pp", c.max_pp, "no larger pipeline degree")
      ->check(whole_number(1, 1'000'000'000))
      ->group(limits);
  app.add_option("--max-cp", c.max_cp, "no larger context-parallel degree")
      ->check(whole_number(1, 1'000'000'000))
      ->group(limits);
  app.add_flag("--tp-across-hosts", c.tp_across_hosts, "also tensor parallel beyond one link domain")->group(limits);
  app.add_option("--spare", f.spare_percent, "percent of a device's memory that stays free; default 10")
      ->check(number_within(0, 99))
      ->group(limits);
  app.add_flag("--runnable", c.runnable, "only what Trireme's own runtime has today: data-parallel replicas")
      ->group(limits);
  const char* const more = "Axes that are not searched unless they are named (beside plans without them)";
  app.add_option("--bucket-mb", f.bucket_mb,
                 "MiB of gradients that are reduced together, in place of the profile's own")
      ->delimiter(',')
      ->check(whole_number(1, 1'000'000))
      ->group(more);
  app.add_option("--shard-ranks", c.shard_ranks, "ZeRO 3 within so many ranks, copies between them (hybrid sharding)")
      ->delimiter(',')
      ->check(whole_number(2, 1'000'000'000))
      ->group(more);
  app.add_flag("--offload-optimizer", c.offload_optimizer, "optimizer state and step on the host")->group(more);
  app.add_option("--compress", c.compression, "gradients sent in this share of their bytes (0.25)")
      ->delimiter(',')
      ->check(number_within(0.001, 1))
      ->group(more);
  const char* const output = "Output";
  app.add_option("--top", f.top, "how many layouts to show, the fastest plan of each; default 4")
      ->check(whole_number(1, 1000))
      ->group(output);
  app.add_flag("--pareto", f.pareto, "plans of which no other is both faster and smaller")->group(output);
  app.add_option("--explain", f.explain, "time or memory: each term with its formula and values")
      ->check(one_of({"time", "memory"}))
      ->group(output);
  app.add_option(
         "--price", f.price,
         "price of one device for an hour: adds the cost of a step and of 1e12 tokens; default: the cluster file's")
      ->check(number_within(0, 1e9))
      ->group(output);
  app.add_flag("--json", f.as_json, "the same as JSON on standard output")->group(output);
}

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
  const Estimate e = found.estimate(best.plan);
  std::printf("\n%s\n", describe(best.plan).c_str());
  std::printf("  step %s (%s to %s)   %.0f %s/s   MFU %.1f %%   memory %s of %s on pipeline rank %d\n",
              seconds_text(e.step_seconds).c_str(), seconds_text(e.low_seconds).c_str(),
              seconds_text(e.high_seconds).c_str(), e.tokens_per_second,
              found.training.sequence > 0 ? "tokens" : "samples", 100 * e.mfu, bytes_text(e.peak_bytes).c_str(),
              bytes_text(found.machine.memory_bytes).c_str(), e.peak_rank);
  print_cost(found, e.step_seconds);
  if (flags.explain != "memory")
    print_terms("time of the step", e.time, e.step_seconds, &seconds_text, flags.explain == "time");
  const plan::StageMemory& fullest = e.memory[static_cast<size_t>(e.peak_rank)];
  if (flags.explain == "memory") {
    for (const plan::StageMemory& stage : e.memory) {
      print_terms(str("memory of pipeline rank ", stage.stage_rank, ": ", bytes_text(stage.total())).c_str(),
                  stage.terms, stage.total(), &bytes_text, true);
    }
  } else if (flags.explain.empty()) {
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

/// The message of a search that found nothing: the reasons, and by how much the nearest failed.
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

/// What lies beside the search itself: flags that can never be met, and whether fewer devices would do better.
void look_around(PlanFound& found, const Constraints& constraints) {
  int64_t common = 0;
  int domain = found.groups.empty() ? found.machine.domain : found.groups.front().machine.domain;
  for (const plan::DeviceGroup& group : found.groups) {
    common = std::gcd(common, group.devices);
    domain = std::min(domain, group.machine.domain);
  }
  if (found.groups.empty()) common = found.inputs.devices;
  found.impossible =
      plan::impossible_values(constraints, found.model, found.training, found.inputs.devices, common, domain);
  plan::SearchOptions options;
  options.keep = 1;
  // A slow kind may cost more than it gives.
  for (const plan::DeviceGroup& group : found.groups) {
    const SearchResult alone = search(found.model, group.machine, found.training, group.devices, constraints, options);
    found.alone.push_back(alone.best.empty() ? std::nullopt : std::optional<Candidate>(alone.best.front()));
  }
  // More than this takes seconds: then the answer is not kept waiting.
  constexpr int64_t kMostPlans = 500'000;
  if (!found.groups.empty() || found.result.best.empty() || found.result.considered > kMostPlans) return;
  const double flops =
      3 * forward_flops(found.inputs.model, found.inputs.training.sequence, true) * found.training.global_batch;
  found.fewer = plan::faster_on_fewer(found.model, found.machine, found.training, found.inputs.devices, constraints,
                                      flops, found.result.best.front().seconds);
}

}  // namespace

int cmd_plan_search(const std::vector<std::string>& args) {
  CLI::App app(
      "Searches all plans for the fastest that fits: degrees of data, tensor, pipeline, context and expert "
      "parallelism, micro-batch,\n"
      "interleaving, recomputation and ZeRO stage. No device is needed. docs/planner.md derives every number.",
      "trireme plan");
  SearchFlags flags;
  add_search_flags(app, flags);
  if (parsed_for_help(app, args, "plan", "trireme plan")) return 0;
  for (const std::string& name : flags.recompute) {
    flags.constraints.recompute.push_back(name == "none"   ? plan::Recompute::kNone
                                          : name == "full" ? plan::Recompute::kFull
                                                           : plan::Recompute::kSelective);
  }
  flags.constraints.spare = flags.spare_percent / 100;
  for (const int64_t mb : flags.bucket_mb) flags.constraints.bucket_bytes.push_back(mb << 20);

  PlanFound found;
  found.inputs = read_plan_inputs(flags.what, true);
  found.price = app.count("--price") > 0 ? flags.price : found.inputs.machine.cluster.price_per_device_hour;
  if (!flags.explain.empty() && !found.inputs.kinds.empty()) {
    throw Error(ErrorKind::kUnsupported,
                str("[plan] --explain ", flags.explain, ": the terms are told of equal hosts only, and those of ",
                    flags.what.cluster, " differ. Ask for each kind on its own."));
  }
  found.model = plan::numbers_of(found.inputs.model);
  found.machine = plan::numbers_of(found.inputs.machine, found.inputs.training);
  found.training = plan::numbers_of(found.inputs.training);
  const auto begun = std::chrono::steady_clock::now();
  ProgressBar bar;
  plan::SearchOptions options;
  options.keep = flags.top;
  options.one_of_each_layout = true;
  bool slow = false;
  options.progress = [&](double share) {
    slow = slow || std::chrono::steady_clock::now() - begun > std::chrono::seconds(1);
    if (slow) bar.update(static_cast<int64_t>(share * 1000), 1000, "searching plans");
  };
  for (const PlanInputs::Kind& kind : found.inputs.kinds)
    found.groups.push_back({plan::numbers_of(kind.machine, found.inputs.training), kind.devices});
  found.result =
      found.groups.empty()
          ? search(found.model, found.machine, found.training, found.inputs.devices, flags.constraints, options)
          : search_mixed(found.model, found.groups, found.training, flags.constraints, options);
  bar.finish();
  look_around(found, flags.constraints);
  found.search_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();

  if (flags.as_json) std::printf("%s\n", to_json(found).dump(2).c_str());
  if (found.result.best.empty()) {
    if (!flags.as_json) print_rejected(found);
    std::fflush(stdout);
    const bool wrong_flags = !found.result.nearest && !found.impossible.empty();
    throw Error(wrong_flags ? ErrorKind::kConfig : ErrorKind::kOutOfMemory, nothing_fits(found));
  }
  if (flags.as_json) return 0;
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
  return 0;
}

}  // namespace trireme::cli
