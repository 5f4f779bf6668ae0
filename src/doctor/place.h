// Where the kernel's files are. Tests give a folder of their own in place of each.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme::doctor {

struct Place {
  std::string sys = "/sys";
  std::string proc = "/proc";
  std::string dev = "/dev";
};

/// The first 64 KiB of a file without blanks at its end; nullopt when it cannot be read.
[[nodiscard]] std::optional<std::string> read_text_file(const std::string& path);

/// The number that the file begins with, "0x1a" too; nullopt when there is none.
[[nodiscard]] std::optional<int64_t> read_number_file(const std::string& path);

/// Names in a folder, sorted, without "." and ".."; empty when there is none.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

/// PCI devices by vendor (0x10de) and the first four digits of their class (0x0302).
struct PciDevice {
  std::string address;  ///< "0000:3b:00.0"
  int64_t vendor = 0;
  int64_t kind = 0;  ///< base class and subclass: 0x0302 is a 3D controller
};
[[nodiscard]] std::vector<PciDevice> pci_devices(const Place& place);

inline constexpr int64_t kNvidia = 0x10de;
inline constexpr int64_t kAmd = 0x1002;
inline constexpr int64_t kIntel = 0x8086;
inline constexpr int64_t kMellanox = 0x15b3;

/// Graphics or compute cards of a vendor; of Intel only those that are no part of a CPU.
[[nodiscard]] int count_gpus(const std::vector<PciDevice>& devices, int64_t vendor);

}  // namespace trireme::doctor
