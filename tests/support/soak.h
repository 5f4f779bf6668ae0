// The two sizes of a long table: all of it as tier soak, a tenth with a fixed seed everywhere else (cmake/TriremeTest.cmake).
#pragma once

#include <cstdlib>
#include <string_view>

namespace trireme::testing {

[[nodiscard]] inline bool whole_table() {
  const char* soak = std::getenv("TRIREME_SOAK");
  return soak != nullptr && std::string_view(soak) == "full";
}

}  // namespace trireme::testing
