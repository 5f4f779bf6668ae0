// A window for ranks that are threads of one process, on one mapping: what ThreadSanitizer can see.
#pragma once

#include <memory>

#include "comm/transport/shared_parts.h"
#include "comm/transport/window.h"

namespace trireme::comm {

/// Zeroed memory of this process. Threads do not die alone, so a rank counts as alive until it leaves.
[[nodiscard]] std::shared_ptr<WindowMemory> make_inproc_memory(const WindowShape& shape);

/// As share_memory of transport/shm, for threads: every rank gets a copy of the result.
[[nodiscard]] SharedParts make_inproc_parts(int size, size_t part_bytes);

}  // namespace trireme::comm
