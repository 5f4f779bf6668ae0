// Reads machines/*.json: devices, clusters and software profiles. docs/planner.md shows a full example.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/json_object.h"
#include "trireme/plan/machine_desc.h"

namespace trireme::plan {

/// Everything that the machine files say. Names are compared without regard to case.
struct MachineCatalog {
  std::vector<DeviceDesc> devices;
  std::vector<ClusterDesc> clusters;
  std::vector<SoftwareProfile> software;

  /// By name or one of other_names; nullptr when there is none.
  [[nodiscard]] const DeviceDesc* find_device(std::string_view name) const;
  [[nodiscard]] const ClusterDesc* find_cluster(std::string_view name) const;
  [[nodiscard]] const SoftwareProfile* find_software(std::string_view name) const;

  /// The same, kConfig with the nearest known name when there is none.
  [[nodiscard]] const DeviceDesc& device(std::string_view name) const;
  [[nodiscard]] const ClusterDesc& cluster(std::string_view name) const;
  [[nodiscard]] const SoftwareProfile& software_profile(std::string_view name) const;

  /// Adds what one file says. kConfig with file and key: not JSON, unknown key, missing or impossible value, a name that is taken.
  void add(std::string_view text, const std::string& file);
};

/// One entry of "devices"; `file` is the object whose "sources" it may refer to.
[[nodiscard]] DeviceDesc read_device(const JsonObject& at, const JsonObject& file);

/// All files of the folder. kConfig as above, also when a cluster names a device that no file has.
[[nodiscard]] MachineCatalog load_machines(const std::string& folder);
/// Those that are shipped (data_folder.h).
[[nodiscard]] MachineCatalog load_machines();

}  // namespace trireme::plan
