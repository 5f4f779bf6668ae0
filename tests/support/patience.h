// How long tests wait for what must come: for a reply, the end of a process, the other ranks.
#pragma once

#include <chrono>

namespace trireme::test {

/// No contract and no aim for speed: it turns a hang into a failure that says where. So long that no busy machine gets there, and
/// shorter than ctest's own limit (cmake/TriremeTest.cmake).
inline constexpr std::chrono::seconds kPatience{100};

}  // namespace trireme::test
