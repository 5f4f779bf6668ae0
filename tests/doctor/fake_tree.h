// A folder that looks like /sys, /proc or /dev.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "doctor/place.h"
#include "support/temp_dir.h"

namespace trireme::doctor {

class FakeTree {
 public:
  void file(const std::string& path, std::string_view content) const {
    const std::filesystem::path whole = folder_.path() + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << content << "\n";
  }
  /// A PCI device: vendor 0x10de, kind 0x0302 and so on.
  void pci(const std::string& address, const std::string& vendor, const std::string& kind) const {
    file("sys/bus/pci/devices/" + address + "/vendor", vendor);
    file("sys/bus/pci/devices/" + address + "/class", kind);
  }
  void ib_port(const std::string& device, const char* state, const char* physical, const char* rate, const char* lid,
               const char* layer) const {
    const std::string folder = "sys/class/infiniband/" + device;
    file(folder + "/hca_type", "MT4129");
    file(folder + "/ports/1/state", state);
    file(folder + "/ports/1/phys_state", physical);
    file(folder + "/ports/1/rate", rate);
    file(folder + "/ports/1/lid", lid);
    file(folder + "/ports/1/sm_lid", lid);
    file(folder + "/ports/1/link_layer", layer);
  }
  [[nodiscard]] Place place() const {
    return {folder_.path() + "/sys", folder_.path() + "/proc", folder_.path() + "/dev"};
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

 private:
  test::TempDir folder_;
};

}  // namespace trireme::doctor
