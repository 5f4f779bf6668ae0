#include "plan/constants.h"

#include "base/str.h"

namespace trireme::plan {

std::vector<NamedConstant> constants_of(const Machine& machine) {
  std::vector<NamedConstant> all;
  std::string of;
  // What a machine file leaves out has no source.
  const auto add = [&](const std::string& name, const Sourced& constant) {
    if (!constant.source.empty()) all.push_back({of, name, constant.value, constant.source});
  };
  const DeviceDesc& d = machine.device;
  of = str("device ", d.name);
  for (const auto& [precision, peak] : d.peak_flops) add(str("peak_flops.", precision), peak);
  add("memory_bytes", d.memory_bytes);
  add("memory_bandwidth", d.memory_bandwidth);
  add("processors", d.processors);
  add("link_bandwidth", d.link_bandwidth);
  add("host_link", d.host_link);
  add("matmul_efficiency", d.matmul_efficiency);
  add("matmul_half_depth", d.matmul_half_depth);
  add("memory_efficiency", d.memory_efficiency);
  add("attention_efficiency", d.attention_efficiency);
  add("batched_efficiency", d.batched_efficiency);
  add("low_precision_efficiency", d.low_precision_efficiency);
  add("link_efficiency", d.link_efficiency);
  add("convolution_efficiency", d.convolution_efficiency);
  const ClusterDesc& c = machine.cluster;
  of = c.name.empty() ? "cluster" : str("cluster ", c.name);
  add("host_network", c.host_network);
  add("launch_seconds", c.launch_seconds);
  add("link_latency", c.link_latency);
  add("network_efficiency", c.network_efficiency);
  if (c.devices_per_group > 0) add("group_bandwidth", c.group_bandwidth);
  const SoftwareProfile& s = machine.software;
  of = str("software ", s.name);
  add("attention_generation", s.attention_generation);
  add("overlap", s.overlap);
  add("framework_rate", s.framework_rate);
  add("gather_share", s.gather_share);
  add("context_bytes", s.context_bytes);
  return all;
}

}  // namespace trireme::plan
