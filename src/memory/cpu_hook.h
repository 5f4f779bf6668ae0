// LibTorch's CPU allocations on their way to whoever watches: an allocator in front of the one that is there.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace trireme::memory {

/// Told on the thread that allocates or frees. Must not allocate tensors, and must not throw.
class CpuObserver {
 public:
  CpuObserver() = default;
  virtual ~CpuObserver() = default;
  CpuObserver(const CpuObserver&) = delete;
  CpuObserver& operator=(const CpuObserver&) = delete;

  virtual void allocated(const void* block, size_t bytes) noexcept = 0;
  virtual void freed(const void* block) noexcept = 0;
  /// The allocator is about to throw.
  virtual void refused(size_t /*bytes*/) noexcept {}
};

/// False, with a warning, where the process's allocator frees in a way of its own, so that nothing can be seen. Installs the allocator at first
/// use, for good. A permanent observer is never removed; the others are told under a shared lock.
bool add_cpu_observer(CpuObserver& observer, bool permanent = false);
/// On return it is not told any more.
void remove_cpu_observer(CpuObserver& observer);

/// Makes the free of a block that was there before be told too. False: it is freed in a way of its own.
bool watch_free_of(c10::DataPtr& block);

}  // namespace trireme::memory
