// `trireme plan --model ... --cluster ...`: the fastest plan, why the next ones lost, and what was rejected.
#include <CLI/CLI.hpp>
#include <chrono>
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
#include "cli/plan_found_text.h"
#include "cli/plan_search_flags.h"
#include "cli/progress_bar.h"
#include "plan/impossible_values.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

/// What lies beside the search itself: flags that can never be met, and whether fewer devices would do better.
void look_around(PlanFound& found, const plan::Constraints& constraints) {
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
    const plan::SearchResult alone =
        search(found.model, group.machine, found.training, group.devices, constraints, options);
    found.alone.push_back(alone.best.empty() ? std::nullopt : std::optional<plan::Candidate>(alone.best.front()));
  }
  if (found.groups.empty() && !found.result.best.empty())
    found.buckets = bucket_sizes(found.model, found.machine, found.training, found.result.best.front().plan,
                                 plan::Bytes{found.result.limit_bytes});
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
  settle(flags);

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
  print_found(found, flags);
  return 0;
}

}  // namespace trireme::cli
