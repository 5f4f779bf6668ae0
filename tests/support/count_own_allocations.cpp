// Replaces operator new for the whole program. In a file of its own, so that the compiler cannot pair it with delete.

#include "support/count_own_allocations.h"

#include <cstdlib>
#include <new>

#include "comm/own_code.h"

std::atomic<int64_t> trireme::test::num_own_allocations{0};

void* operator new(std::size_t size) {
  if (trireme::comm::OwnCodeScope::active) trireme::test::num_own_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  if (trireme::comm::OwnCodeScope::active) trireme::test::num_own_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
