// Memory that all ranks of a group have mapped, one part of equal size per rank: where gradients are born so that peers can reduce them
// where they lie.
#pragma once

#include <cstddef>
#include <memory>

namespace trireme::comm {

class WindowMemory;

struct SharedParts {
  std::shared_ptr<WindowMemory> memory;  ///< keeps the mapping
  std::byte* base = nullptr;
  size_t part_bytes = 0;

  [[nodiscard]] std::byte* part(int rank) const noexcept { return base + static_cast<size_t>(rank) * part_bytes; }
};

}  // namespace trireme::comm
