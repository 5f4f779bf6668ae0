// Logging to stderr, filtered by TRIREME_LOG=level[,component=level...] (levels: trace debug info warn error off;
// default: info).
//
// The implementation uses spdlog, which must not be seen by files that include LibTorch: hence this narrow door.
#pragma once

#include <string>
#include <string_view>

#include "base/str.h"

namespace trireme::log {

enum class Level { kTrace, kDebug, kInfo, kWarn, kError, kOff };

/// Whether a line of this component and level would be written. [thread-safe]
[[nodiscard]] bool enabled(Level level, std::string_view component) noexcept;

/// One line: "HH:MM:SS.mmm W [component] rank r: text". [thread-safe]
void write(Level level, std::string_view component, const std::string& text);

/// Shown in every line from now on; -1 (the default) shows none.
void set_rank(int rank) noexcept;

/// Replaces the filter; throws kConfig naming the part that is wrong.
void set_filter(std::string_view filter);

/// Throws kConfig when TRIREME_LOG is wrong. For the start of a program; without it the first line says so and info is used.
void require_good_filter();

template <typename... Parts>
void info(std::string_view component, const Parts&... parts) {
  if (enabled(Level::kInfo, component)) write(Level::kInfo, component, str(parts...));
}
template <typename... Parts>
void warn(std::string_view component, const Parts&... parts) {
  if (enabled(Level::kWarn, component)) write(Level::kWarn, component, str(parts...));
}
template <typename... Parts>
void error(std::string_view component, const Parts&... parts) {
  if (enabled(Level::kError, component)) write(Level::kError, component, str(parts...));
}
template <typename... Parts>
void debug(std::string_view component, const Parts&... parts) {
  if (enabled(Level::kDebug, component)) write(Level::kDebug, component, str(parts...));
}

}  // namespace trireme::log
