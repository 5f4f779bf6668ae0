// From the bytes of a collective trace to a TraceSnapshot, believing nothing. Private to profile.
#pragma once

#include <span>
#include <string>

#include "profile/collective_trace.h"

namespace trireme::profile {

/// How often a reader looks again at a record that was being written.
inline constexpr int kReadTries = 8;

/// `bytes` is a whole file whose records are each a copy of one moment, or say kBusy. `name` is for the reason.
[[nodiscard]] Result<TraceSnapshot> decode_trace(std::span<const char> bytes, const std::string& name);

}  // namespace trireme::profile
