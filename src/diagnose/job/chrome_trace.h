// Chrome traces are told apart from other JSON here; what they say of time is the work of `trireme trace report`.
#pragma once

#include <string>
#include <string_view>

namespace trireme::diagnose {

[[nodiscard]] bool is_chrome_trace(std::string_view head);

/// The word for the file: how many whole events it has and where it is cut off or no JSON (files up to 64 MiB), and what to run.
[[nodiscard]] std::string look_at_chrome_trace(const std::string& path, const std::string& file);

}  // namespace trireme::diagnose
