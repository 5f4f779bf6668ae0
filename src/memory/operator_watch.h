// What the operators of LibTorch allocate is for: told by their inputs, before their kernels run.
#pragma once

#include <ATen/record_function.h>

#include <optional>

#include "memory/track/block_table.h"

namespace trireme::memory {

/// Of what is allocated on this thread at this moment; nothing outside of operators, and while none are watched. The rule stands in
/// trireme/memory/tracker.h.
[[nodiscard]] std::optional<BlockLabel> running_label() noexcept;

/// Operators on all threads are looked at, by the labels of tracked().blocks, until at::removeCallback().
[[nodiscard]] at::CallbackHandle watch_operators();

}  // namespace trireme::memory
