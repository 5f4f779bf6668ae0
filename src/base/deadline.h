// The moment at which a wait ends.
#pragma once

#include <algorithm>
#include <chrono>

namespace trireme {

/// Now plus `timeout`, which may be anything: below zero counts as zero, and more than a hundred years, which would not fit the clock, as
/// that.
[[nodiscard]] inline std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 100);
  return std::chrono::steady_clock::now() + std::clamp(timeout, std::chrono::milliseconds(0), kLongest);
}

}  // namespace trireme
