// Environment variables as docs/env.md has them.
#pragma once

#include <cstdlib>

namespace trireme {

/// The value, or nullptr: a variable that is set to nothing counts as not set.
[[nodiscard]] inline const char* env_value(const char* name) {
  const char* value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody changes the environment while threads run
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace trireme
