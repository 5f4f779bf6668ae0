#include "cli/plan_inputs.h"

#include <CLI/CLI.hpp>
#include <algorithm>

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
  app.add_option("--seq-len", flags.sequence, "tokens of a sample; default: what the model fixes, if it does")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--precision", flags.precision, "fp32, tf32, fp16, bf16, fp8 or fp4; default bf16");
  app.add_option("--software", flags.software,
                 "what runs the training, by its name in machines/software.json (megatron-core-te, torchtitan-compile, "
                 "...); default 'default'");
  app.add_option("--like", flags.like, "read an unknown architecture as if it were this one; stated with every result");
}

namespace {

bool alike(const plan::HostGroup& a, const plan::HostGroup& b) {
  return a.devices_per_host == b.devices_per_host && a.device.name == b.device.name &&
         a.device.memory_bytes.value == b.device.memory_bytes.value &&
         a.device.link_bandwidth.value == b.device.link_bandwidth.value &&
         a.device.devices_per_domain == b.device.devices_per_domain && a.host_network.value == b.host_network.value;
}

/// Groups that say the same are one.
std::vector<plan::HostGroup> kinds_of(const plan::ClusterSpec& spec) {
  std::vector<plan::HostGroup> kinds;
  for (const plan::HostGroup& group : spec.groups) {
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return alike(kind, group); });
    if (known == kinds.end())
      kinds.push_back(group);
    else
      known->hosts += group.hosts;
  }
  return kinds;
}

}  // namespace

PlanInputs read_plan_inputs(const PlanFlags& flags, bool unlike_hosts) {
  const plan::MachineCatalog catalog = plan::load_machines();
  PlanInputs inputs;
  plan::HfOptions options;
  options.like = flags.like;
  inputs.model = plan::read_model(flags.model, options);
  const plan::ClusterSpec spec = plan::read_cluster_spec(flags.cluster, catalog);
  const std::vector<plan::HostGroup> kinds = kinds_of(spec);
  if (kinds.size() > 1 && !unlike_hosts) {
    throw Error(
        ErrorKind::kUnsupported,
        str("[plan.cluster] --cluster ", flags.cluster,
            ": only 'trireme plan' without a part takes hosts of different kinds. Ask for each kind on its own."));
  }
  inputs.machine = {spec.cluster, spec.device(), catalog.software_profile(flags.software)};
  inputs.devices = spec.num_devices();
  for (size_t i = 0; kinds.size() > 1 && i < kinds.size(); ++i) {
    const plan::HostGroup& kind = kinds[i];
    plan::ClusterDesc cluster = spec.cluster;
    cluster.hosts = kind.hosts;
    cluster.devices_per_host = kind.devices_per_host;
    cluster.device = kind.device.name;
    cluster.host_network = kind.host_network;
    inputs.kinds.push_back(
        {{cluster, kind.device, inputs.machine.software}, int64_t{kind.hosts} * kind.devices_per_host});
  }

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
  std::vector<const plan::DeviceDesc*> devices = {&inputs.machine.device};
  for (const PlanInputs::Kind& kind : inputs.kinds) devices.push_back(&kind.machine.device);
  for (const plan::DeviceDesc* device : devices) {
    if (device->peak_flops.find(flags.precision) != device->peak_flops.end()) continue;
    std::string known;
    for (const auto& [name, peak] : device->peak_flops) known += (known.empty() ? "" : ", ") + name;
    throw Error(ErrorKind::kConfig,
                str("[plan] --precision ", flags.precision, ": ", device->name, " has ", known, "."));
  }
  return inputs;
}

std::string describe(const PlanInputs& inputs) {
  const plan::ClusterDesc& cluster = inputs.machine.cluster;
  std::string hosts = str(cluster.hosts, " x ", cluster.devices_per_host, " x ", inputs.machine.device.name);
  for (size_t i = 0; i < inputs.kinds.size(); ++i) {
    const plan::ClusterDesc& kind = inputs.kinds[i].machine.cluster;
    hosts = i > 0 ? std::move(hosts) + " and " : std::string();
    hosts += str(kind.hosts, " x ", kind.devices_per_host, " x ", kind.device, " (kind ", i + 1, ")");
  }
  const bool layers = inputs.model.is_transformer();
  return str(inputs.model.name, " (", count_text(static_cast<double>(total_parameters(inputs.model))), " parameters",
             layers ? str(", ", inputs.model.num_layers(), " layers") : std::string(), ") on ", hosts,
             ", global batch ", inputs.training.global_batch,
             inputs.training.sequence > 0 ? str(" x ", inputs.training.sequence, " tokens") : std::string(), ", ",
             inputs.training.precision, ", software ", inputs.machine.software.name);
}

}  // namespace trireme::cli
