// `trireme plan --model ... --cluster ...`: the fastest plan, why the next ones lost, and what was rejected.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/str.h"
#include "cli/cmd_plan.h"
#include "cli/flag_errors.h"
#include "cli/plan_inputs.h"
#include "cli/progress_bar.h"
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
      ->check(CLI::Range(0, 3))
      ->group(limits);
  app.add_option("--recompute", f.recompute, "none, selective, full")
      ->delimiter(',')
      ->check(CLI::IsMember({"none", "selective", "full"}))
      ->group(limits);
  app.add_flag("--even-stages", c.even_stages,
               "split the layers evenly over the pipeline, as programs do that cannot be told otherwise")
      ->group(limits);
  app.add_option("--schedule", c.schedule, "1f1b, interleaved, zb1p, zb2p, zbv; default: all")
      ->delimiter(',')
      ->check(CLI::IsMember({"1f1b", "interleaved", "zb1p", "zb2p", "zbv"}))
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
      ->check(CLI::Range(1, 1000))
      ->group(output);
  app.add_flag("--pareto", f.pareto, "plans of which no other is both faster and smaller")->group(output);
  app.add_option("--explain", f.explain, "time or memory: each term with its formula and values")
      ->check(CLI::IsMember({"time", "memory"}))
      ->group(output);
  app.add_option("--price", f.price, "price of one device for an hour: adds the cost of a step and of 1e12 tokens")
      ->check(number_within(0, 1e9))
      ->group(output);
  app.add_flag("--json", f.as_json, "the same as JSON on standard output")->group(output);
}

struct Found {
  PlanInputs inputs;
  plan::ModelNumbers model;
  plan::MachineNumbers machine;
  plan::TrainingNumbers training;
  std::vector<plan::DeviceGroup> groups;  ///< unlike hosts
  SearchResult result;
  double search_seconds = 0;
};

Estimate estimate_of(const Found& found, const plan::Plan& plan) {
  return plan::estimate(found.inputs.model, found.inputs.machine, found.inputs.training, plan).value();
}

void print_terms(const char* title, const std::vector<plan::Term>& terms, double total, std::string (*text)(double),
                 bool formulas) {
  std::printf("\n%s\n", title);
  for (const plan::Term& term : terms) {
    std::printf("  %-28s %10s %5.1f %%%s%s\n", term.name.c_str(), text(term.value).c_str(), 100 * term.value / total,
                formulas ? "  " : "", formulas ? term.formula.c_str() : "");
  }
}

/// Of unlike hosts: the parts of the kind that takes longest, and where memory is nearest to its limit.
void print_best_of_unlike(const Found& found, const SearchFlags& flags) {
  const Candidate& best = found.result.best.front();
  const plan::MixedCost cost =
      mixed_cost(found.model, found.groups, found.training, best.plan, flags.constraints.spare);
  const double tokens = found.training.global_batch * std::max(1.0, found.training.sequence);
  std::printf("\n%s\n  step %s   %.0f %s/s   memory %s of the %s that may be used on pipeline rank %d of %s\n",
              describe(best.plan).c_str(), seconds_text(best.seconds).c_str(), tokens / best.seconds,
              found.training.sequence > 0 ? "tokens" : "samples", bytes_text(best.bytes).c_str(),
              bytes_text(best.limit).c_str(), best.rank,
              found.inputs.kinds[static_cast<size_t>(best.group)].machine.device.name.c_str());
  std::printf("\ntime of the step\n");
  for (const plan::NamedSeconds& part : named(cost.time)) {
    if (part.seconds > 0)
      std::printf("  %-28s %10s %5.1f %%\n", part.name, seconds_text(part.seconds).c_str(),
                  100 * part.seconds / best.seconds);
  }
  // A slow kind may cost more than it gives.
  for (size_t i = 0; i < found.groups.size(); ++i) {
    plan::SearchOptions options;
    options.keep = 1;
    const SearchResult alone = search(found.model, found.groups[i].machine, found.training, found.groups[i].devices,
                                      flags.constraints, options);
    if (!alone.best.empty() && alone.best.front().seconds < best.seconds) {
      std::printf("\nthe %lld %s alone are faster: %s, %s\n", static_cast<long long>(found.groups[i].devices),
                  found.inputs.kinds[i].machine.device.name.c_str(), seconds_text(alone.best.front().seconds).c_str(),
                  describe(alone.best.front().plan).c_str());
    }
  }
  std::printf("\nunmodelled: unlike devices together were never compared with a measurement\n");
}

void print_best(const Found& found, const SearchFlags& flags) {
  if (!found.groups.empty()) return print_best_of_unlike(found, flags);
  const Candidate& best = found.result.best.front();
  const Estimate e = estimate_of(found, best.plan);
  std::printf("\n%s\n", describe(best.plan).c_str());
  std::printf("  step %s (%s to %s)   %.0f %s/s   MFU %.1f %%   memory %s of %s on pipeline rank %d\n",
              seconds_text(e.step_seconds).c_str(), seconds_text(e.low_seconds).c_str(),
              seconds_text(e.high_seconds).c_str(), e.tokens_per_second,
              found.training.sequence > 0 ? "tokens" : "samples", 100 * e.mfu, bytes_text(e.peak_bytes).c_str(),
              bytes_text(found.machine.memory_bytes).c_str(), e.peak_rank);
  if (flags.price > 0) {
    const double per_second = flags.price * static_cast<double>(found.inputs.devices) / 3600;
    std::printf("  cost %.4g a step, %.4g for 1e12 tokens\n", per_second * e.step_seconds,
                per_second * 1e12 / e.tokens_per_second);
  }
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

void print_rest(const Found& found, const SearchFlags& flags) {
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

void print_rejected(const SearchResult& r) {
  int64_t all = 0;
  for (const int64_t number : r.rejected) all += number;
  std::printf("\nrejected %lld of %lld plans\n", static_cast<long long>(all), static_cast<long long>(r.considered));
  for (int i = 0; i < plan::kNumRejected; ++i) {
    const int64_t number = r.rejected[static_cast<size_t>(i)];
    if (number > 0)
      std::printf("  %10lld  %s\n", static_cast<long long>(number), text_of(static_cast<plan::Rejected>(i)));
  }
}

/// The message of a search that found nothing: the reasons, and by how much the nearest failed.
std::string nothing_fits(const Found& found) {
  const SearchResult& r = found.result;
  if (r.nearest) {
    return str("[plan] nothing fits: the nearest plan (", describe(r.nearest->plan), ") needs ",
               bytes_text(r.nearest->bytes), " on pipeline rank ", r.nearest->rank, ", ",
               bytes_text(r.nearest->bytes - r.limit_bytes), " (",
               static_cast<int64_t>(std::ceil(r.nearest->bytes - r.limit_bytes)), " bytes) more than the ",
               bytes_text(r.limit_bytes), " that may be used. Use more or larger devices, or spare less with --spare.");
  }
  int most = 0;
  for (int i = 0; i < plan::kNumRejected; ++i) {
    if (r.rejected[static_cast<size_t>(i)] > r.rejected[static_cast<size_t>(most)]) most = i;
  }
  return str("[plan] no plan is possible on ", found.inputs.devices, " devices: of ", r.considered, " the most (",
             r.rejected[static_cast<size_t>(most)], ") have this fault: ", text_of(static_cast<plan::Rejected>(most)),
             ". Change the batch, the number of devices or the flags that exclude plans.");
}

nlohmann::json to_json(const plan::Plan& p) {
  nlohmann::json shares = nlohmann::json::array();
  for (const plan::ReplicaShare& share : p.replicas) {
    shares.push_back({{"kind", share.group},
                      {"count", share.count},
                      {"micro_steps", share.micro_steps},
                      {"one_less", share.shorter}});
  }
  return {{"dp", p.dp},
          {"tp", p.tp},
          {"pp", p.pp},
          {"cp", p.cp},
          {"ep", p.ep},
          {"micro_batch", p.micro_batch},
          {"schedule", p.schedule},
          {"virtual_stages", p.virtual_stages},
          {"recompute", to_string(p.recompute)},
          {"zero_stage", p.zero_stage},
          {"sequence_parallel", p.sequence_parallel},
          {"stage_layers", p.stage_layers},
          {"stage_kind", p.stage_group},
          {"replicas", shares},
          {"shard_ranks", p.shard_ranks},
          {"bucket_bytes", p.bucket_bytes},
          {"compression", p.compression},
          {"offload_optimizer", p.offload_optimizer}};
}

nlohmann::json to_json(const Candidate& c) {
  return {{"plan", to_json(c.plan)}, {"step_s", c.seconds}, {"peak_bytes", c.bytes}, {"peak_pipeline_rank", c.rank}};
}

nlohmann::json to_json(const Found& found) {
  const SearchResult& r = found.result;
  nlohmann::json rejected = nlohmann::json::object();
  for (int i = 0; i < plan::kNumRejected; ++i) {
    if (r.rejected[static_cast<size_t>(i)] > 0)
      rejected[text_of(static_cast<plan::Rejected>(i))] = r.rejected[static_cast<size_t>(i)];
  }
  nlohmann::json out = {
      {"schema", 1},
      {"model", {{"name", found.inputs.model.name}, {"parameters", total_parameters(found.inputs.model)}}},
      {"devices", found.inputs.devices},
      {"limit_bytes", r.limit_bytes},
      {"considered", r.considered},
      {"costed", r.costed},
      {"rejected", rejected},
      {"plans", nlohmann::json::array()},
      {"pareto", nlohmann::json::array()},
      {"nearest", r.nearest ? to_json(*r.nearest) : nlohmann::json(nullptr)}};
  for (const Candidate& c : r.best) {
    nlohmann::json row = to_json(c);
    if (!found.groups.empty()) {
      row["limit_bytes"] = c.limit;
      row["kind"] = c.group;
      out["plans"].push_back(row);
      continue;
    }
    const Estimate e = estimate_of(found, c.plan);
    row["low_s"] = e.low_seconds;
    row["high_s"] = e.high_seconds;
    row["tokens_per_s"] = e.tokens_per_second;
    row["mfu"] = e.mfu;
    for (const plan::Term& term : e.time)
      row["time"].push_back({{"name", term.name}, {"seconds", term.value}, {"formula", term.formula}});
    for (const plan::StageMemory& stage : e.memory) {
      nlohmann::json terms = nlohmann::json::array();
      for (const plan::Term& term : stage.terms)
        terms.push_back({{"name", term.name}, {"bytes", term.value}, {"formula", term.formula}});
      row["memory"].push_back({{"pipeline_rank", stage.stage_rank}, {"bytes", stage.total()}, {"terms", terms}});
    }
    row["unmodelled"] = e.unmodelled;
    out["plans"].push_back(row);
  }
  for (const Candidate& c : r.pareto) out["pareto"].push_back(to_json(c));
  return out;
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

  Found found;
  found.inputs = read_plan_inputs(flags.what, true);
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
  found.search_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();

  if (flags.as_json) std::printf("%s\n", to_json(found).dump(2).c_str());
  if (found.result.best.empty()) {
    if (!flags.as_json) print_rejected(found.result);
    std::fflush(stdout);
    throw Error(ErrorKind::kOutOfMemory, nothing_fits(found));
  }
  if (flags.as_json) return 0;
  std::printf("%s\n", describe(found.inputs).c_str());
  std::printf("the fastest of %lld plans, %lld of them costed, in %s\n",
              static_cast<long long>(found.result.considered), static_cast<long long>(found.result.costed),
              seconds_text(found.search_seconds).c_str());
  print_best(found, flags);
  print_rest(found, flags);
  print_rejected(found.result);
  return 0;
}

}  // namespace trireme::cli
