// Estimates that a third of odd values does not move.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace trireme::trace {

/// The value at that part of the sorted ones, 0 to 1; 0 of none. Takes a copy because it reorders.
[[nodiscard]] inline double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(std::lround(part * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

/// The mean of the two middle ones for an even number.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) / 2;
}

}  // namespace trireme::trace
