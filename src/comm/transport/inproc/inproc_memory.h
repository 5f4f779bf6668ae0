// A window for ranks that are threads of one process, on one mapping: what ThreadSanitizer can see.
#pragma once

#include <memory>

#include "comm/transport/window.h"

namespace trireme::comm {

/// Zeroed memory of this process. Threads do not die alone, so a rank counts as alive until it leaves.
[[nodiscard]] std::shared_ptr<WindowMemory> make_inproc_memory(const WindowShape& shape);

}  // namespace trireme::comm
