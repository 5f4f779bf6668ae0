// Counts what the program allocates by operator new while a thread is in an OwnCodeScope.
#pragma once

#include <atomic>
#include <cstdint>

namespace trireme::test {

extern std::atomic<int64_t> num_own_allocations;

}  // namespace trireme::test
