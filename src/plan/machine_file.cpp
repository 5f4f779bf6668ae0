#include "plan/machine_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "base/nearest.h"
#include "base/str.h"
#include "plan/data_folder.h"
#include "plan/json_object.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr const char* kComponent = "plan.machine_file";

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// Of a constant. A share of a peak is at most 1.
constexpr double kNoLimit = std::numeric_limits<double>::max();
struct Range {
  double most = kNoLimit;
  bool zero = false;
};
constexpr Range kShare{.most = 1}, kShareOrNone{.most = 1, .zero = true}, kAnyOrNone{.zero = true};
/// Relative to `matmul_efficiency`, which padded shapes lower: a kernel that needs no padding may be above it.
constexpr Range kRelative{.most = 1.5};
/// Of a software's generation to the one that the devices' constants were measured with.
constexpr Range kGeneration{.most = 10};

/// {"value": 312e12, "source": "https://..."} or {"value": 0.75, "fitted_on": "the A100 rows of ..."}. A source "@name" stands for the entry
/// `name` of the file's "sources".
Sourced read_sourced(const JsonObject& holder, std::string_view key, const JsonObject& file, Range range = {}) {
  const JsonObject at = holder.object(key);
  at.refuse_unknown_keys({"value", "source", "fitted_on"});
  Sourced result;
  result.value = at.number("value");
  if (result.value < 0 || (result.value == 0 && !range.zero) || result.value > range.most) {
    at.fail("value", str("is ", result.value, "; ", range.zero ? "0 or more" : "more than 0",
                         range.most < kNoLimit ? str(", at most ", range.most, ",") : "", " is required. Correct it."));
  }
  result.fitted = at.has("fitted_on");
  if (result.fitted == at.has("source"))
    at.fail("source", "and key 'fitted_on': exactly one of them is required. Say where the value is from.");
  std::string text = at.text(result.fitted ? "fitted_on" : "source");
  if (text.starts_with('@')) {
    if (!file.is_object("sources"))
      at.fail("source", str("is \"", text, "\", but the file has no 'sources'. Add them."));
    text = file.object("sources").text(text.substr(1));
  }
  if (text.empty()) at.fail("source", "is empty; an address or a text is required. Say where the value is from.");
  result.source = result.fitted ? "fitted on " + text : text;
  return result;
}

struct FittedField {
  const char* key;
  Sourced DeviceDesc::* field;
  Range range;
};
constexpr std::array<FittedField, 8> kFitted{{
    {"matmul_efficiency", &DeviceDesc::matmul_efficiency, kShare},
    {"matmul_half_depth", &DeviceDesc::matmul_half_depth, {}},
    {"memory_efficiency", &DeviceDesc::memory_efficiency, kShare},
    {"attention_efficiency", &DeviceDesc::attention_efficiency, kShare},
    {"batched_efficiency", &DeviceDesc::batched_efficiency, kRelative},
    {"low_precision_efficiency", &DeviceDesc::low_precision_efficiency, kShare},
    {"link_efficiency", &DeviceDesc::link_efficiency, kShare},
    {"convolution_efficiency", &DeviceDesc::convolution_efficiency, kRelative},
}};

}  // namespace

DeviceDesc read_device(const JsonObject& at, const JsonObject& file) {
  std::vector<std::string> known{
      "name",           "other_names",   "peak_flops",         "memory_bytes", "memory_bandwidth", "processors",
      "link_bandwidth", "nic_bandwidth", "devices_per_domain", "measured",     "host_link"};
  for (const FittedField& f : kFitted) known.emplace_back(f.key);
  at.refuse_unknown_keys(known);
  DeviceDesc device;
  device.name = at.text("name");
  device.other_names = at.texts("other_names");
  const std::vector<std::string> precisions{"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};
  const JsonObject peaks = at.object("peak_flops");
  peaks.refuse_unknown_keys(precisions);
  for (const std::string& precision : precisions)
    if (peaks.has(precision)) device.peak_flops[precision] = read_sourced(peaks, precision, file);
  if (device.peak_flops.empty())
    at.fail("peak_flops", "is empty; the peak of one precision at least is required. Add it.");
  device.memory_bytes = read_sourced(at, "memory_bytes", file);
  device.memory_bandwidth = read_sourced(at, "memory_bandwidth", file);
  device.processors = read_sourced(at, "processors", file);
  device.link_bandwidth = read_sourced(at, "link_bandwidth", file);
  device.nic_bandwidth = read_sourced(at, "nic_bandwidth", file);
  if (at.has("host_link")) device.host_link = read_sourced(at, "host_link", file);
  device.devices_per_domain = static_cast<int>(at.integer_or("devices_per_domain", 0, 1, 1 << 20));
  const bool low_precision = device.peak_flops.contains("fp8") || device.peak_flops.contains("fp4");
  for (const FittedField& f : kFitted) {
    if (f.field == &DeviceDesc::low_precision_efficiency && !low_precision && !at.has(f.key)) continue;
    device.*(f.field) = read_sourced(at, f.key, file, f.range);
  }
  device.measured = at.boolean("measured");
  return device;
}

namespace {

std::vector<Publication> read_publications(const JsonObject& holder) {
  std::vector<Publication> publications;
  for (const JsonObject& at : holder.objects("publications")) {
    at.refuse_unknown_keys({"source", "note", "device", "precision"});
    publications.push_back({.source = at.text("source"),
                            .note = at.text_or("note", ""),
                            .precision = at.text_or("precision", ""),
                            .device = at.text_or("device", "")});
  }
  return publications;
}

ClusterDesc read_cluster(const JsonObject& at, const JsonObject& file) {
  at.refuse_unknown_keys({"name", "source", "publications", "hosts", "devices_per_host", "device", "host_network",
                          "launch_seconds", "link_latency", "network_efficiency", "devices_per_group",
                          "group_bandwidth", "price_per_device_hour", "calibrated"});
  ClusterDesc cluster;
  cluster.name = at.text("name");
  cluster.source = at.text("source");
  cluster.publications = read_publications(at);
  cluster.hosts = static_cast<int>(at.integer_or("hosts", 1, 1, 1 << 24));
  cluster.devices_per_host = static_cast<int>(at.integer("devices_per_host", 1, 1 << 20));
  cluster.device = at.text("device");
  cluster.host_network = read_sourced(at, "host_network", file);
  cluster.launch_seconds = read_sourced(at, "launch_seconds", file, kAnyOrNone);
  cluster.link_latency = read_sourced(at, "link_latency", file, kAnyOrNone);
  cluster.network_efficiency = read_sourced(at, "network_efficiency", file, kShare);
  cluster.devices_per_group = static_cast<int>(at.integer_or("devices_per_group", 0, 0, 1 << 20));
  if (cluster.devices_per_group > 0) cluster.group_bandwidth = read_sourced(at, "group_bandwidth", file);
  cluster.price_per_device_hour = at.number_or("price_per_device_hour", 0);
  if (cluster.price_per_device_hour < 0)
    at.fail("price_per_device_hour", str("is ", cluster.price_per_device_hour, "; 0 or more is required. Correct it."));
  cluster.calibrated = at.boolean_or("calibrated", false);
  return cluster;
}

SoftwareProfile read_software(const JsonObject& at, const JsonObject& file) {
  at.refuse_unknown_keys({"name",
                          "source",
                          "publications",
                          "fused_attention",
                          "fused_loss",
                          "compiled",
                          "graphs",
                          "hides_gradients",
                          "fused_norms",
                          "hides_tensor_parallel",
                          "splits_pipeline_messages",
                          "sequence_parallel",
                          "zero_stage",
                          "selective_is_attention",
                          "gradient_bytes",
                          "attention_generation",
                          "overlap",
                          "framework_rate",
                          "gather_share",
                          "context_bytes",
                          "full_precision_weights",
                          "reports_process_memory",
                          "gathered_layers",
                          "sends_once_per_host",
                          "fused_experts",
                          "hides_expert_network",
                          "hides_expert_parallel",
                          "calibrated"});
  SoftwareProfile profile;
  profile.name = at.text("name");
  profile.source = at.text("source");
  profile.publications = read_publications(at);
  profile.fused_attention = at.boolean_or("fused_attention", profile.fused_attention);
  profile.fused_loss = at.boolean_or("fused_loss", profile.fused_loss);
  profile.compiled = at.boolean_or("compiled", profile.compiled);
  profile.graphs = at.boolean_or("graphs", profile.graphs);
  profile.hides_gradients = at.boolean_or("hides_gradients", profile.hides_gradients);
  profile.fused_norms = at.boolean_or("fused_norms", profile.fused_norms);
  profile.hides_tensor_parallel = at.boolean_or("hides_tensor_parallel", profile.hides_tensor_parallel);
  profile.splits_pipeline_messages = at.boolean_or("splits_pipeline_messages", profile.splits_pipeline_messages);
  profile.sequence_parallel = at.boolean_or("sequence_parallel", profile.sequence_parallel);
  profile.zero_stage = static_cast<int>(at.integer_or("zero_stage", profile.zero_stage, 0, 3));
  profile.selective_is_attention = at.boolean_or("selective_is_attention", profile.selective_is_attention);
  profile.gradient_bytes = at.number_or("gradient_bytes", profile.gradient_bytes);
  profile.attention_generation = read_sourced(at, "attention_generation", file, kGeneration);
  profile.overlap = read_sourced(at, "overlap", file, kShareOrNone);
  profile.framework_rate = read_sourced(at, "framework_rate", file, kGeneration);
  profile.full_precision_weights = at.boolean_or("full_precision_weights", false);
  profile.reports_process_memory = at.boolean_or("reports_process_memory", false);
  profile.sends_once_per_host = at.boolean_or("sends_once_per_host", false);
  profile.fused_experts = at.boolean_or("fused_experts", false);
  profile.hides_expert_network = at.boolean_or("hides_expert_network", false);
  profile.hides_expert_parallel = at.boolean_or("hides_expert_parallel", false);
  profile.gathered_layers = at.number_or("gathered_layers", profile.gathered_layers);
  profile.context_bytes = read_sourced(at, "context_bytes", file, kAnyOrNone);
  if (at.has("gather_share")) profile.gather_share = read_sourced(at, "gather_share", file, kShare);
  profile.calibrated = at.boolean_or("calibrated", false);
  return profile;
}

template <typename Thing>
const Thing* find_by_name(const std::vector<Thing>& things, std::string_view name) {
  for (const Thing& thing : things)
    if (same_name(thing.name, name)) return &thing;
  return nullptr;
}

template <typename Thing>
std::vector<std::string> names_of(const std::vector<Thing>& things) {
  std::vector<std::string> names;
  for (const Thing& thing : things) names.push_back(thing.name);
  return names;
}

[[noreturn]] void refuse_name(std::string_view what, std::string_view name, const std::vector<std::string>& known,
                              const std::vector<std::string>& listed) {
  const std::string hint = did_you_mean(name, known);
  throw Error(ErrorKind::kConfig,
              str("[", kComponent, "] no ", what, " is called '", name, "'", hint.empty() ? "." : hint,
                  " Known: ", join(names_with(name, listed)), ". Correct the name, or describe it in a JSON file."));
}

}  // namespace

const DeviceDesc* MachineCatalog::find_device(std::string_view name) const {
  if (const DeviceDesc* found = find_by_name(devices, name)) return found;
  for (const DeviceDesc& device : devices)
    for (const std::string& other : device.other_names)
      if (same_name(other, name)) return &device;
  return nullptr;
}

const ClusterDesc* MachineCatalog::find_cluster(std::string_view name) const { return find_by_name(clusters, name); }

const SoftwareProfile* MachineCatalog::find_software(std::string_view name) const {
  return find_by_name(software, name);
}

const DeviceDesc& MachineCatalog::device(std::string_view name) const {
  if (const DeviceDesc* found = find_device(name)) return *found;
  std::vector<std::string> known = names_of(devices);
  const std::vector<std::string> listed = known;
  for (const DeviceDesc& d : devices) known.insert(known.end(), d.other_names.begin(), d.other_names.end());
  refuse_name("device", name, known, listed);
}

const ClusterDesc& MachineCatalog::cluster(std::string_view name) const {
  if (const ClusterDesc* found = find_cluster(name)) return *found;
  refuse_name("cluster", name, names_of(clusters), names_of(clusters));
}

const SoftwareProfile& MachineCatalog::software_profile(std::string_view name) const {
  if (const SoftwareProfile* found = find_software(name)) return *found;
  refuse_name("software profile", name, names_of(software), names_of(software));
}

void MachineCatalog::add(std::string_view text, const std::string& file) {
  const JsonObject top = JsonObject::parse(text, file, kComponent);
  top.refuse_unknown_keys({"schema", "sources", "devices", "clusters", "software"});
  (void)top.integer("schema", 1, 1);
  const auto taken = [](const JsonObject& at, std::string_view name) {
    at.fail("name", str("is \"", name, "\", which is taken already. Give every one a name of its own."));
  };
  for (const JsonObject& at : top.objects("devices")) {
    DeviceDesc device = read_device(at, top);
    if (find_device(device.name) != nullptr) taken(at, device.name);
    for (const std::string& other : device.other_names)
      if (find_device(other) != nullptr) taken(at, other);
    devices.push_back(std::move(device));
  }
  for (const JsonObject& at : top.objects("clusters")) {
    ClusterDesc cluster = read_cluster(at, top);
    if (find_cluster(cluster.name) != nullptr) taken(at, cluster.name);
    clusters.push_back(std::move(cluster));
  }
  for (const JsonObject& at : top.objects("software")) {
    SoftwareProfile profile = read_software(at, top);
    if (find_software(profile.name) != nullptr) taken(at, profile.name);
    software.push_back(std::move(profile));
  }
}

MachineCatalog load_machines(const std::string& folder) {
  MachineCatalog catalog;
  for (const std::string& path : json_files_in(folder)) {
    catalog.add(read_text(path, kComponent), path);
  }
  for (const ClusterDesc& cluster : catalog.clusters) (void)catalog.device(cluster.device);
  return catalog;
}

MachineCatalog load_machines() { return load_machines(data_folder("machines")); }

}  // namespace trireme::plan
