// `trireme plan estimate-memory`: does it fit, and if not, what is the least that must change.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/str.h"
#include "cli/cmd_plan.h"
#include "cli/flag_errors.h"
#include "cli/plan_inputs.h"
#include "plan/cluster_spec.h"
#include "plan/machine_file.h"
#include "plan/model_file.h"
#include "plan/plan_text.h"
#include "plan/smallest_change.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

using plan::bytes_text;

constexpr double kSixteenBit = 2, kMixedPrecisionAdam = 2 + 4 + 12;
constexpr int64_t kUsualSequence = 2048;

/// 141107412992 -> "141,107,412,992".
std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

struct MemoryFlags {
  PlanFlags what;
  plan::Plan plan;
  std::string recompute = "none";
  double spare_percent = 10;
  bool as_json = false;
};

void print_model(const plan::ModelDesc& model) {
  const int64_t parameters = total_parameters(model);
  std::printf("%s: %s parameters\n", model.name.c_str(), with_commas(parameters).c_str());
  const int64_t weights = parameters * static_cast<int64_t>(kSixteenBit);
  std::printf("  weights alone, 16 bit                        %22s bytes  %.2f GiB\n", with_commas(weights).c_str(),
              static_cast<double>(weights) / (1 << 30));
  const int64_t states = parameters * static_cast<int64_t>(kMixedPrecisionAdam);
  std::printf(
      "  with gradients and Adam, 2 + 4 + 12 B each   %22s bytes  %.2f GiB, before activations, over all ranks that "
      "share one copy\n",
      with_commas(states).c_str(), static_cast<double>(states) / (1 << 30));
  for (const std::string& line : model.approximations) std::printf("  approximation: %s\n", line.c_str());
}

nlohmann::json to_json(const plan::ModelDesc& model) {
  const int64_t parameters = total_parameters(model);
  return {{"schema", 1},
          {"model", model.name},
          {"parameters", parameters},
          {"weight_bytes_16_bit", parameters * static_cast<int64_t>(kSixteenBit)},
          {"adam_bytes", parameters * static_cast<int64_t>(kMixedPrecisionAdam)},
          {"approximations", model.approximations}};
}

/// A flag that would have no effect is refused.
void check_together(const CLI::App& app) {
  if (app.count("--cluster") > 0) return;
  for (const char* flag : {"--global-batch", "--seq-len", "--precision", "--software", "--tp", "--pp", "--cp", "--ep",
                           "--micro-batch", "--virtual-stages", "--zero", "--recompute", "--spare"}) {
    if (app.count(flag) == 0) continue;
    throw Error(ErrorKind::kConfig, str("[plan.estimate-memory] ", flag,
                                        " goes with --cluster: without one only the bytes of the model itself "
                                        "are told. Name a cluster too."));
  }
}

/// Prints and returns whether it fits.
bool report_fit(const PlanInputs& inputs, const MemoryFlags& flags, nlohmann::json& json) {
  const plan::ModelNumbers model = plan::numbers_of(inputs.model);
  const plan::MachineNumbers machine = plan::numbers_of(inputs.machine, inputs.training);
  const plan::TrainingNumbers training = plan::numbers_of(inputs.training);
  plan::Plan base = flags.plan;
  const int64_t model_ranks = base.tp * base.pp * base.cp;
  if (inputs.devices % model_ranks != 0) {
    throw Error(ErrorKind::kConfig,
                str("[plan.estimate-memory] tp ", base.tp, " x pp ", base.pp, " x cp ", base.cp, " = ", model_ranks,
                    " does not divide the ", inputs.devices, " devices of --cluster."));
  }
  base.dp = inputs.devices / model_ranks;
  base.sequence_parallel = base.tp > 1;
  if (base.virtual_stages > 1) base.schedule = "interleaved";
  const int64_t layers = inputs.model.num_layers(), chunks = base.pp * base.virtual_stages;
  // Embedding and head may take a place each.
  if (layers > 0 && base.virtual_stages > 1 && layers % chunks != 0 && (layers + 2) % chunks != 0) {
    throw Error(ErrorKind::kConfig,
                str("[plan.estimate-memory] pp ", base.pp, " x ", base.virtual_stages, " virtual stages = ", chunks,
                    " does not divide the ", layers, " layers (nor, with embedding and head, ", layers + 2,
                    "). Change one of them."));
  }
  if (const plan::PlanFault fault = plan::check_plan(model, training, base); fault != plan::PlanFault::kNone) {
    throw Error(ErrorKind::kConfig, str("[plan.estimate-memory] ", plan::text_of(fault, model, training, base), "."));
  }
  const plan::Estimate e = plan::estimate(inputs.model, inputs.machine, inputs.training, base).value();
  const double limit = machine.memory_bytes.value * (1 - flags.spare_percent / 100);
  const bool fits = e.peak_bytes <= limit;
  json["plan"] = describe(base);
  json["peak_bytes"] = e.peak_bytes;
  json["peak_pipeline_rank"] = e.peak_rank;
  json["limit_bytes"] = limit;
  json["fits"] = fits;
  json["smallest_change"] = nullptr;
  const auto say = [&flags](const std::string& text) {
    if (!flags.as_json) std::printf("%s\n", text.c_str());
  };
  say(str("\n", describe(inputs), "\n", describe(base), "\n  needs ", bytes_text(e.peak_bytes), " on pipeline rank ",
          e.peak_rank, ": ", fits ? "fits, " : "does NOT fit, ", bytes_text(std::abs(e.peak_bytes - limit)),
          fits ? " less" : " more", " than the ", bytes_text(limit), " that may be used (",
          bytes_text(machine.memory_bytes.value), " less ", flags.spare_percent, " % spare)"));
  for (const plan::Term& term : e.memory[static_cast<size_t>(e.peak_rank)].terms) {
    char line[160];
    std::snprintf(line, sizeof(line), "    %-18s %10s  %s", term.name.c_str(), bytes_text(term.value).c_str(),
                  term.formula.c_str());
    say(line);
  }
  if (fits) return true;
  plan::Constraints constraints;
  constraints.spare = flags.spare_percent / 100;
  const auto least =
      plan::smallest_change(model, machine, training, inputs.devices, constraints, base, inputs.devices * 1024);
  if (!least) {
    say("  no plan on up to 1024 times as many devices fits");
    return false;
  }
  const std::string words = join(changes(base, least->to.plan));
  json["smallest_change"] = {{"devices", least->devices},
                             {"changes", words},
                             {"plan", describe(least->to.plan)},
                             {"peak_bytes", least->to.bytes}};
  say(str("  the smallest change that makes it fit: ",
          least->devices > inputs.devices ? str(least->devices, " devices, and ") : std::string(), words, "\n    then ",
          bytes_text(least->to.bytes), " and about ", plan::seconds_text(least->to.seconds), " a step"));
  return false;
}

}  // namespace

int cmd_plan_memory(const std::vector<std::string>& args) {
  CLI::App app(
      "Says how many bytes a model takes, and with --cluster whether a plan fits there: as it is given, else all "
      "devices data parallel,\n"
      "nothing recomputed, nothing sharded. Where it does not fit, the smallest change that makes it fit. Exit code 1: "
      "does not fit.",
      "trireme plan estimate-memory");
  MemoryFlags flags;
  add_plan_flags(app, flags.what);
  app.get_option("--cluster")->required(false);
  app.get_option("--global-batch")
      ->required(false)
      ->description("samples of one optimizer step; default: micro-batch x dp x pp, which fills the pipeline");
  app.get_option("--seq-len")
      ->description("tokens of a sample; default: what the model fixes, else 2048 or its positions");
  app.add_option("--tp", flags.plan.tp, "tensor-parallel degree; default 1")->check(whole_number(1, 1'000'000'000));
  app.add_option("--pp", flags.plan.pp, "pipeline degree; default 1")->check(whole_number(1, 1'000'000'000));
  app.add_option("--cp", flags.plan.cp, "context-parallel degree; default 1")->check(whole_number(1, 1'000'000'000));
  app.add_option("--ep", flags.plan.ep, "expert-parallel degree; default 1")->check(whole_number(1, 1'000'000'000));
  app.add_option("--micro-batch", flags.plan.micro_batch, "samples of one replica in one forward; default 1")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--virtual-stages", flags.plan.virtual_stages,
                 "model chunks of one pipeline rank (interleaved); default 1")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--zero", flags.plan.zero_stage, "ZeRO stage 0 to 3; default 0")->check(whole_number(0, 3));
  app.add_option("--recompute", flags.recompute, "none, selective or full; default none")
      ->check(one_of({"none", "selective", "full"}));
  app.add_option("--spare", flags.spare_percent, "percent of a device's memory that stays free; default 10")
      ->check(number_within(0, 99));
  app.add_flag("--json", flags.as_json, "the same as JSON on standard output");
  if (parsed_for_help(app, args, "plan.estimate-memory", "trireme plan estimate-memory")) return 0;
  check_together(app);
  flags.plan.recompute = flags.recompute == "none"   ? plan::Recompute::kNone
                         : flags.recompute == "full" ? plan::Recompute::kFull
                                                     : plan::Recompute::kSelective;
  plan::HfOptions options;
  options.like = flags.what.like;
  const plan::ModelDesc model = plan::read_model(flags.what.model, options);
  nlohmann::json json = to_json(model);
  if (!flags.as_json) print_model(model);
  bool fits = true;
  if (!flags.what.cluster.empty()) {
    if (model.is_transformer() && flags.what.sequence == 0 && model.sequence == 0) {
      flags.what.sequence = model.positions > 0 ? std::min(kUsualSequence, model.positions) : kUsualSequence;
    }
    if (flags.what.global_batch == 0) {
      const int64_t devices = plan::read_cluster_spec(flags.what.cluster, plan::load_machines()).num_devices();
      flags.what.global_batch = flags.plan.micro_batch * flags.plan.pp *
                                std::max<int64_t>(1, devices / flags.plan.tp / flags.plan.pp / flags.plan.cp);
    }
    fits = report_fit(read_plan_inputs(flags.what), flags, json);
  }
  if (flags.as_json) std::printf("%s\n", json.dump(2).c_str());
  return fits ? 0 : 1;
}

}  // namespace trireme::cli
