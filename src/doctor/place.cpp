#include "doctor/place.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/fd.h"

namespace trireme::doctor {

std::optional<std::string> read_text_file(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return std::nullopt;
  std::string text(size_t{64} << 10, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  const size_t last = text.find_last_not_of(" \t\r\n");
  text.resize(last == std::string::npos ? 0 : last + 1);
  return text;
}

std::optional<int64_t> read_number_file(const std::string& path) {
  const std::optional<std::string> text = read_text_file(path);
  if (!text) return std::nullopt;
  const bool hex = text->starts_with("0x");
  const char* begin = text->data() + (hex ? 2 : 0);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(begin, text->data() + text->size(), value, hex ? 16 : 10);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::vector<std::string> names_in(const std::string& folder) {
  struct Close {
    void operator()(DIR* dir) const { closedir(dir); }
  };
  std::vector<std::string> names;
  const std::unique_ptr<DIR, Close> dir(opendir(folder.c_str()));
  if (!dir) return names;
  while (const dirent* entry = readdir(dir.get())) {  // NOLINT(concurrency-mt-unsafe): one thread
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
      names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<PciDevice> pci_devices(const Place& place) {
  std::vector<PciDevice> devices;
  const std::string folder = place.sys + "/bus/pci/devices/";
  for (const std::string& name : names_in(folder)) {
    const auto vendor = read_number_file(folder + name + "/vendor");
    const auto kind = read_number_file(folder + name + "/class");
    if (vendor && kind) devices.push_back({name, *vendor, *kind >> 8});
  }
  return devices;
}

int count_gpus(const std::vector<PciDevice>& devices, int64_t vendor) {
  constexpr std::array<int64_t, 4> kGraphics = {0x0300, 0x0302, 0x0380, 0x1200};
  return static_cast<int>(std::count_if(devices.begin(), devices.end(), [&](const PciDevice& device) {
    if (device.vendor != vendor) return false;
    if (vendor == kIntel && device.kind == 0x0300) return false;
    return std::find(kGraphics.begin(), kGraphics.end(), device.kind) != kGraphics.end();
  }));
}

}  // namespace trireme::doctor
