// The words by which the user can call this program again.
#pragma once

#include <string>

namespace trireme::cli {

/// "trireme COMMAND", with the path in front where PATH would find another `trireme` or none; "trireme-COMMAND" where there
/// is none beside it. What called us may know better and says so in TRIREME_CALLED_AS ("./dev").
[[nodiscard]] std::string called_as(const std::string& command);

}  // namespace trireme::cli
