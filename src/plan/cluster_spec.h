// What `--cluster` says: HOSTSxDEVICESxTYPE, the name of a known cluster, or a JSON file. docs/planner.md shows the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/machine_file.h"
#include "trireme/plan/machine_desc.h"

namespace trireme::plan {

/// Equal hosts.
struct HostGroup {
  int hosts = 1;
  int devices_per_host = 1;
  DeviceDesc device;     ///< with what the file changes of it
  Sourced host_network;  ///< all NICs of one host together, one direction, B/s
};

struct ClusterSpec {
  /// Hosts of all groups; device, devices per host and network of the first group (a uniform cluster has only that one).
  ClusterDesc cluster;
  std::vector<HostGroup> groups;

  [[nodiscard]] bool uniform() const { return groups.size() == 1; }
  [[nodiscard]] const DeviceDesc& device() const { return groups.front().device; }
  [[nodiscard]] int64_t num_devices() const;
};

/// "16x8xH100" (16 hosts of 8), "8xH100" (one host), "H100" (one device), "selene" (a cluster of `catalog`), "4x8xselene" (as many hosts like
/// that cluster's), or the path of a JSON file. What a specification does not say is that of the device's usual host, uncalibrated.
///
/// Errors  kConfig: neither form, an unknown device or cluster with the nearest name, a count that is 0 or beyond 10 million devices; of a file:
///         file and key.
[[nodiscard]] ClusterSpec read_cluster_spec(const std::string& text, const MachineCatalog& catalog);

/// The same of a file's text.
[[nodiscard]] ClusterSpec parse_cluster_file(std::string_view text, const std::string& file,
                                             const MachineCatalog& catalog);

}  // namespace trireme::plan
