// Bytes for people.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::memory {

/// "512 B", "3.0 KiB", "1.5 GiB"; negative amounts with their sign.
[[nodiscard]] std::string amount(int64_t bytes);

}  // namespace trireme::memory
