// For measuring what the leak watch costs.
#pragma once

namespace trireme::memory {

/// Off: new allocations are not looked at, and steps do not count. [thread-safe]
void set_leak_watch_recording(bool on) noexcept;

}  // namespace trireme::memory
