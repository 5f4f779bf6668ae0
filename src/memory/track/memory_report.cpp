#include "trireme/memory/memory_report.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "memory/track/amount.h"

namespace trireme::memory {
namespace {

constexpr std::array<std::string_view, kNumCategories> kNames = {"parameters",  "gradients",     "optimizer state",
                                                                 "activations", "communication", "other"};

std::string line(char fill, size_t width) { return '|' + std::string(width, fill) + "|\n"; }

void add_device(std::ostringstream& out, const DeviceUse& device) {
  const int64_t rest = device.allocated - device.known.total();
  out << device.device << ": allocated " << amount(device.allocated) << " (peak " << amount(device.peak_allocated)
      << "): parameters " << amount(device.known[Category::kParameters]) << ", gradients "
      << amount(device.known[Category::kGradients]) << ", optimizer state "
      << amount(device.known[Category::kOptimizerState]) << ", activations and other " << amount(rest) << "; reserved "
      << amount(device.reserved) << ", of it free in pieces " << amount(device.inactive_split) << '\n';
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::ostringstream out;
  out << '(';
  for (size_t i = 0; i < shape.size(); ++i) out << (i > 0 ? ", " : "") << shape[i];
  out << ')';
  return out.str();
}

}  // namespace

std::string_view to_string(Category category) noexcept { return kNames[static_cast<size_t>(category)]; }

int64_t MemoryUse::total() const noexcept { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

std::string MemoryReport::text() const {
  constexpr size_t kWidth = 75;
  std::ostringstream out;
  const auto row = [&](std::string_view name, const std::string& a, const std::string& b, const std::string& c,
                       const std::string& d) {
    out << "| " << std::left << std::setw(18) << name << std::right << " | " << std::setw(13) << a << " | "
        << std::setw(13) << b << " | " << std::setw(11) << c << " | " << std::setw(6) << d << " |\n";
  };
  out << line('=', kWidth);
  const std::string title = "Trireme memory summary, CPU tensors, after " + std::to_string(steps) + " steps";
  out << "| " << std::left << std::setw(kWidth - 2) << title << std::right << " |\n" << line('-', kWidth);
  row("", "now", "highest", "at the peak", "blocks");
  out << line('-', kWidth);
  for (size_t i = 0; i < kNumCategories; ++i)
    row(kNames[i], amount(current.bytes[i]), amount(peak.bytes[i]), amount(at_peak.bytes[i]),
        std::to_string(blocks[i]));
  out << line('-', kWidth);
  row("total", amount(current.total()), amount(at_peak.total()), amount(at_peak.total()),
      std::to_string(std::accumulate(blocks.begin(), blocks.end(), int64_t{0})));
  row("process (resident)", amount(resident), "", "", "");
  out << line('=', kWidth);
  out << allocations << " allocations and " << frees
      << " frees were seen. The categories' highest values were not reached at one time.\n";
  for (const DeviceUse& device : devices) add_device(out, device);
  return out.str();
}

std::string MemoryReport::modules_text() const {
  std::vector<ModuleUse> order = modules;
  const auto size = [](const ModuleUse& use) {
    return use.current.total() - use.current[Category::kActivations] + use.peak_activations;
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return size(a) > size(b); });
  size_t width = 6;
  for (const ModuleUse& module : order) width = std::max(width, module.name.size());
  std::ostringstream out;
  const auto row = [&](const std::string& name, const std::array<std::string, 5>& cells) {
    out << std::left << std::setw(static_cast<int>(width)) << name << std::right;
    for (const std::string& cell : cells) out << "  " << std::setw(15) << cell;
    out << '\n';
  };
  row("module", {"parameters", "gradients", "optimizer state", "activations", "highest"});
  for (const ModuleUse& module : order) {
    row(module.name.empty() ? "(model)" : module.name,
        {amount(module.current[Category::kParameters]), amount(module.current[Category::kGradients]),
         amount(module.current[Category::kOptimizerState]), amount(module.current[Category::kActivations]),
         amount(module.peak_activations)});
  }
  return out.str();
}

std::string tensor_table(const std::vector<TensorRow>& rows) {
  size_t name_width = 12;
  size_t shape_width = 5;
  for (const TensorRow& row : rows) {
    name_width = std::max(name_width, row.name.size());
    shape_width = std::max(shape_width, shape_text(row.shape).size());
  }
  std::ostringstream out;
  const auto line = [&](std::string_view name, std::string_view shape, std::string_view dtype, std::string_view use) {
    out << std::left << std::setw(static_cast<int>(name_width)) << name << std::right << "  "
        << std::setw(static_cast<int>(shape_width)) << shape << "  " << std::setw(8) << dtype << "  " << std::setw(12)
        << use;
  };
  line("Element type", "Size", "Dtype", "Used MEM");
  const std::string rule(name_width + shape_width + 26, '-');
  out << '\n' << rule << '\n';
  std::vector<std::string> devices;
  for (const TensorRow& row : rows) {
    if (std::find(devices.begin(), devices.end(), row.device) == devices.end()) devices.push_back(row.device);
  }
  for (const std::string& device : devices) {
    out << "Storage on " << device << '\n';
    int64_t total = 0;
    for (const TensorRow& row : rows) {
      if (row.device != device) continue;
      total += row.bytes;
      line(row.name, shape_text(row.shape), row.dtype, amount(row.bytes));
      if (!row.shared_with.empty()) out << "  shares the storage of " << row.shared_with;
      out << '\n';
    }
    out << rule << '\n'
        << "Total on " << device << ": " << amount(total) << " (" << total << " bytes)\n"
        << rule << '\n';
  }
  return out.str();
}

}  // namespace trireme::memory
