// The optimizer step that calls issued now belong to.
#pragma once

#include <cstdint>

namespace trireme::comm {

[[nodiscard]] uint32_t current_step() noexcept;

}  // namespace trireme::comm
