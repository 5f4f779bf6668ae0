#include "cli/plan_inputs.h"

#include <CLI/CLI.hpp>

#include "base/str.h"
#include "cli/flag_errors.h"
#include "plan/cluster_spec.h"
#include "plan/machine_file.h"
#include "plan/model_file.h"
#include "plan/plan_text.h"
#include "trireme/base/error.h"

namespace trireme::cli {

using plan::count_text;

void add_plan_flags(CLI::App& app, PlanFlags& flags) {
  app.add_option("--model", flags.model,
                 "Hugging Face config.json, a file like those in models/, or the name of one there")
      ->required();
  app.add_option("--cluster", flags.cluster, "HOSTSxDEVICESxTYPE (16x8xH100), a known cluster, or a JSON file")
      ->required();
  app.add_option("--global-batch", flags.global_batch, "samples of one optimizer step, over all replicas")->required();
  app.add_option("--seq-len", flags.sequence, "tokens of a sample; default: what the model fixes")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--precision", flags.precision, "fp32, tf32, fp16, bf16, fp8 or fp4; default bf16");
  app.add_option("--software", flags.software,
                 "what runs the training, by its name in machines/software.json; default 'default'");
  app.add_option("--like", flags.like, "read an unknown architecture as if it were this one; stated with every result");
}

PlanInputs read_plan_inputs(const PlanFlags& flags) {
  const plan::MachineCatalog catalog = plan::load_machines();
  PlanInputs inputs;
  plan::HfOptions options;
  options.like = flags.like;
  inputs.model = plan::read_model(flags.model, options);
  const plan::ClusterSpec spec = plan::read_cluster_spec(flags.cluster, catalog);
  if (!spec.uniform()) {
    throw Error(ErrorKind::kUnsupported,
                str("[plan.cluster] --cluster ", flags.cluster,
                    ": hosts of different kinds are not searched yet. Plan each kind on its own."));
  }
  inputs.machine = {spec.cluster, spec.device(), catalog.software_profile(flags.software)};
  inputs.devices = spec.num_devices();

  plan::Training& training = inputs.training;
  training.global_batch = flags.global_batch;
  training.sequence = flags.sequence > 0 ? flags.sequence : inputs.model.sequence;
  training.precision = flags.precision;
  training.gradient_bytes = inputs.machine.software.gradient_bytes;
  // Weights that are fp32 already need no second copy beside the two moments.
  const bool wide = flags.precision == "fp32" || flags.precision == "tf32";
  if (inputs.machine.software.full_precision_weights || wide) {
    training.weight_bytes = 4;
    training.optimizer_bytes = 8;
  }
  if (flags.global_batch < 1 || flags.global_batch > 1'000'000'000) {
    throw Error(ErrorKind::kConfig,
                str("[plan] --global-batch ", flags.global_batch, ": 1 to 1,000,000,000 samples are required."));
  }
  if (inputs.model.is_transformer() && training.sequence == 0) {
    throw Error(ErrorKind::kConfig,
                str("[plan] model '", inputs.model.name, "' fixes no sequence length. Give --seq-len."));
  }
  if (inputs.machine.device.peak_flops.find(flags.precision) == inputs.machine.device.peak_flops.end()) {
    std::string known;
    for (const auto& [name, peak] : inputs.machine.device.peak_flops) known += (known.empty() ? "" : ", ") + name;
    throw Error(ErrorKind::kConfig,
                str("[plan] --precision ", flags.precision, ": ", inputs.machine.device.name, " has ", known, "."));
  }
  return inputs;
}

std::string describe(const PlanInputs& inputs) {
  const plan::ClusterDesc& cluster = inputs.machine.cluster;
  return str(inputs.model.name, " (", count_text(static_cast<double>(total_parameters(inputs.model))), " parameters, ",
             inputs.model.num_layers(), " layers) on ", cluster.hosts, " x ", cluster.devices_per_host, " x ",
             inputs.machine.device.name, ", global batch ", inputs.training.global_batch, " x ",
             inputs.training.sequence, " tokens, ", inputs.training.precision, ", software ",
             inputs.machine.software.name);
}

}  // namespace trireme::cli
