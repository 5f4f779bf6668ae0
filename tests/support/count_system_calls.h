// Counts the system calls of one thread, exactly, by a seccomp filter that sends each through a handler of ours.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::test {

/// From now on counts what this thread does; cannot be undone, so use it in a process of its own. Returns why it is not
/// possible here, or an empty text.
[[nodiscard]] std::string start_counting_system_calls();

[[nodiscard]] int64_t num_system_calls() noexcept;

}  // namespace trireme::test
