#include "plan/cluster_spec.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>

#include "base/nearest.h"
#include "base/str.h"
#include "plan/json_object.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr const char* kComponent = "plan.cluster";
constexpr int64_t kMostDevices = 10'000'000;

[[noreturn]] void fail(const std::string& spec, const std::string& what) {
  throw Error(ErrorKind::kConfig, str("[", kComponent, "] '", spec, "' ", what,
                                      "; HOSTSxDEVICESxTYPE (16x8xH100), the name of a known cluster or a JSON file is "
                                      "required. Correct it."));
}

/// "16x" at the beginning of `rest`: returns 16 and cuts it off; 0 when there is no such beginning.
int64_t take_count(std::string_view& rest, const std::string& spec) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), count);
  const auto digits = static_cast<size_t>(end - rest.data());
  if (digits == 0 || digits == rest.size() || (rest[digits] != 'x' && rest[digits] != 'X')) return 0;
  if (error != std::errc() || count < 1 || count > kMostDevices)
    fail(spec, str("has a count of ", rest.substr(0, digits), "; from 1 to ", kMostDevices, " is possible"));
  rest.remove_prefix(digits + 1);
  return count;
}

/// The constants of a cluster that nobody has measured.
void set_uncalibrated(ClusterDesc& cluster) {
  const char* source = "default of a cluster that was not calibrated";
  cluster.launch_seconds = {15e-6, source, false};
  cluster.link_latency = {50e-6, source, false};
  cluster.network_efficiency = {0.9, source, false};
  cluster.calibrated = false;
}

Sourced usual_network(const DeviceDesc& device, int devices_per_host) {
  Sourced network = device.nic_bandwidth;
  network.value *= devices_per_host;
  return network;
}

ClusterSpec spec_of(const HostGroup& group) {
  ClusterSpec spec;
  set_uncalibrated(spec.cluster);
  spec.groups.push_back(group);
  return spec;
}

/// Fills what the cluster says once for all groups.
void settle(ClusterSpec& spec, const std::string& shown) {
  ClusterDesc& cluster = spec.cluster;
  const HostGroup& first = spec.groups.front();
  cluster.device = first.device.name;
  cluster.devices_per_host = first.devices_per_host;
  cluster.host_network = first.host_network;
  int64_t hosts = 0;
  for (const HostGroup& group : spec.groups) hosts += group.hosts;
  if (spec.num_devices() > kMostDevices)
    fail(shown, str("has ", spec.num_devices(), " devices; at most ", kMostDevices, " are planned"));
  cluster.hosts = static_cast<int>(hosts);
}

ClusterSpec of_known_cluster(const ClusterDesc& known, int hosts, const MachineCatalog& catalog) {
  ClusterSpec spec;
  spec.cluster = known;
  spec.groups.push_back({hosts, known.devices_per_host, catalog.device(known.device), known.host_network});
  return spec;
}

Sourced from_file(double value, const std::string& file) { return {value, file, false}; }

double positive(const JsonObject& at, std::string_view key, double most = std::numeric_limits<double>::max()) {
  const double value = at.number(key);
  if (value <= 0) at.fail(key, str("is ", value, "; more than 0 is required. Correct it."));
  if (value > most) at.fail(key, str("is ", value, "; at most ", most, " is required. Correct it."));
  return value;
}

/// Bytes, or bytes a second. 25 where 25e9 is meant would make every plan hopeless without a word.
double many_bytes(const JsonObject& at, std::string_view key) {
  constexpr double kFewest = 1e6;
  const double value = positive(at, key);
  if (value < kFewest) {
    at.fail(key,
            str("is ", value,
                "; it is in bytes (a second), 1e6 at least are required: 25 GB/s or 200 Gbit/s are 25e9. Correct it."));
  }
  return value;
}

HostGroup read_group(const JsonObject& at, const MachineCatalog& catalog) {
  at.refuse_unknown_keys(
      {"count", "devices", "device", "memory_bytes", "link_bandwidth", "devices_per_domain", "nics", "nic_bandwidth"});
  HostGroup group;
  group.hosts = static_cast<int>(at.integer_or("count", 1, 1, kMostDevices));
  group.devices_per_host = static_cast<int>(at.integer("devices", 1, kMostDevices));
  const std::string name = at.text("device");
  const DeviceDesc* device = catalog.find_device(name);
  if (device == nullptr) {
    std::vector<std::string> known;
    for (const DeviceDesc& d : catalog.devices) known.push_back(d.name);
    const std::vector<std::string> listed = known;
    for (const DeviceDesc& d : catalog.devices) known.insert(known.end(), d.other_names.begin(), d.other_names.end());
    at.fail("device", str("is \"", name, "\", which no device is called", did_you_mean(name, known),
                          ". Known: ", join(listed), ". Correct it, or describe it under 'devices'."));
  }
  group.device = *device;
  if (at.has("memory_bytes")) group.device.memory_bytes = from_file(many_bytes(at, "memory_bytes"), at.file());
  if (at.has("link_bandwidth")) group.device.link_bandwidth = from_file(many_bytes(at, "link_bandwidth"), at.file());
  group.device.devices_per_domain =
      static_cast<int>(at.integer_or("devices_per_domain", group.device.devices_per_domain, 1, kMostDevices));
  group.host_network = usual_network(group.device, group.devices_per_host);
  if (at.has("nics") != at.has("nic_bandwidth"))
    at.fail("nics",
            "and key 'nic_bandwidth': both or none are required. Say how many there are and how fast one is (B/s).");
  if (at.has("nics")) {
    const auto nics = static_cast<double>(at.integer("nics", 1, 1 << 20));
    group.host_network = from_file(nics * many_bytes(at, "nic_bandwidth"), at.file());
  }
  return group;
}

}  // namespace

int64_t ClusterSpec::num_devices() const {
  int64_t number = 0;
  for (const HostGroup& group : groups) number += int64_t{group.hosts} * group.devices_per_host;
  return number;
}

ClusterSpec parse_cluster_file(std::string_view text, const std::string& file, const MachineCatalog& catalog) {
  const JsonObject top = JsonObject::parse(text, file, kComponent);
  top.refuse_unknown_keys({"schema", "name", "like", "sources", "devices", "hosts", "launch_seconds", "link_latency",
                           "network_efficiency", "price_per_device_hour"});
  (void)top.integer("schema", 1, 1);
  MachineCatalog known = catalog;
  for (const JsonObject& at : top.objects("devices")) {
    DeviceDesc device = read_device(at, top);
    if (known.find_device(device.name) != nullptr)
      at.fail("name", str("is \"", device.name, "\", which is taken already. Give it a name of its own."));
    known.devices.push_back(std::move(device));
  }
  ClusterSpec spec;
  set_uncalibrated(spec.cluster);
  if (top.has("like")) spec.cluster = known.cluster(top.text("like"));
  for (const JsonObject& at : top.objects("hosts")) spec.groups.push_back(read_group(at, known));
  if (spec.groups.empty()) top.fail("hosts", "is empty or missing; one group of hosts at least is required. Add it.");
  spec.cluster.name = top.text_or("name", std::filesystem::path(file).stem().string());
  spec.cluster.source = file;
  spec.cluster.publications.clear();
  const auto own = [&](const char* key, Sourced& field, double most = std::numeric_limits<double>::max()) {
    if (top.has(key)) field = from_file(positive(top, key, most), file);
  };
  own("launch_seconds", spec.cluster.launch_seconds);
  own("link_latency", spec.cluster.link_latency);
  own("network_efficiency", spec.cluster.network_efficiency, 1);
  if (top.has("launch_seconds") && top.has("link_latency") && top.has("network_efficiency"))
    spec.cluster.calibrated = true;
  spec.cluster.price_per_device_hour = top.number_or("price_per_device_hour", spec.cluster.price_per_device_hour);
  if (spec.cluster.price_per_device_hour < 0)
    top.fail("price_per_device_hour",
             str("is ", spec.cluster.price_per_device_hour, "; 0 or more is required. Correct it."));
  settle(spec, file);
  return spec;
}

ClusterSpec read_cluster_spec(const std::string& text, const MachineCatalog& catalog) {
  std::error_code ignored;
  // A path is one even where it leads to no file: its reader says what is there.
  const bool there = std::filesystem::exists(text, ignored) && !std::filesystem::is_directory(text, ignored);
  if (there || text.ends_with(".json") || text.find('/') != std::string::npos)
    return parse_cluster_file(read_text(text, kComponent), text, catalog);
  if (text.empty()) fail(text, "is empty");

  std::string_view rest = text;
  const int64_t one = take_count(rest, text);
  const int64_t two = one > 0 ? take_count(rest, text) : 0;
  if (rest.empty() || (rest.front() >= '0' && rest.front() <= '9')) fail(text, "names no device after its counts");
  const std::string name(rest);
  const DeviceDesc* device = catalog.find_device(name);
  const ClusterDesc* known = device == nullptr ? catalog.find_cluster(name) : nullptr;
  if (device == nullptr && known == nullptr) {
    std::vector<std::string> names;
    for (const DeviceDesc& d : catalog.devices) names.push_back(d.name);
    const std::vector<std::string> listed = names;
    for (const DeviceDesc& d : catalog.devices) names.insert(names.end(), d.other_names.begin(), d.other_names.end());
    for (const ClusterDesc& c : catalog.clusters) names.push_back(c.name);
    fail(text, str("has the type '", name, "', which is no known device or cluster", did_you_mean(name, names),
                   ". Devices: ", join(listed)));
  }
  ClusterSpec spec;
  if (known != nullptr) {
    if (two > 0 && two != known->devices_per_host)
      fail(text,
           str("gives ", two, " devices a host, but the hosts of '", known->name, "' have ", known->devices_per_host));
    spec = of_known_cluster(*known, static_cast<int>(one > 0 ? one : known->hosts), catalog);
  } else {
    HostGroup group;
    group.hosts = static_cast<int>(two > 0 ? one : 1);
    group.devices_per_host = static_cast<int>(two > 0 ? two : std::max<int64_t>(one, 1));
    group.device = *device;
    group.host_network = usual_network(*device, group.devices_per_host);
    spec = spec_of(group);
    spec.cluster.source = "described as " + text;
  }
  settle(spec, text);
  return spec;
}

}  // namespace trireme::plan
