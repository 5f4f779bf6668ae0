#include "memory/track/amount.h"

#include <array>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace trireme::memory {

std::string amount(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {" B", " KiB", " MiB", " GiB", " TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::ostringstream out;
  out << std::fixed << std::setprecision(unit == 0 ? 0 : 1) << value << kUnits[unit];
  return out.str();
}

}  // namespace trireme::memory
