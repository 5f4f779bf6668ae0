// The blocks that the one MemoryTracker of the process counts, fed by the CPU allocator, and what they are for: told by the inputs of LibTorch's
// operators before their kernels run.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "memory/cpu_hook.h"
#include "memory/track/block_table.h"
#include "memory/track/out_of_memory.h"

namespace trireme::memory {

/// Bytes of the process in memory (VmRSS).
[[nodiscard]] int64_t resident_bytes();

[[nodiscard]] bool is_on_cpu(const at::Tensor& tensor);  ///< and has memory
[[nodiscard]] const void* base_of(const at::Tensor& tensor);

/// Thread safety  All members.
class TrackedBlocks final : public CpuObserver {
 public:
  void allocated(const void* block, size_t bytes) noexcept override;
  void freed(const void* block) noexcept override { table.freed(block); }
  /// Looks at once, since the stack unwinds afterwards and takes the activations along.
  void refused(size_t bytes) noexcept override;
  /// What was refused last; forgets it.
  [[nodiscard]] std::optional<OutOfMemory> take_failure();

  /// Also of blocks that nobody told of.
  void label(const at::Tensor& tensor, BlockLabel label);
  /// Frees of foreign blocks are only seen here.
  void forget_the_dead();

  BlockTable table;

 private:
  std::mutex mutex_;
  std::optional<OutOfMemory> last_failure_;
  std::vector<std::pair<const void*, c10::weak_intrusive_ptr<c10::StorageImpl>>> foreign_;
};

/// The one tracker's blocks, and the buffers that every tracker is told of.
struct Tracked {
  std::shared_mutex mutex;
  TrackedBlocks* blocks = nullptr;
  std::map<const void*, size_t> communication;
};
[[nodiscard]] Tracked& tracked();

void add_communication(TrackedBlocks& blocks, const void* begin, size_t bytes);

/// Operators on all threads are looked at, by the labels of tracked().blocks, until at::removeCallback(). The rule stands in
/// trireme/memory/tracker.h.
[[nodiscard]] at::CallbackHandle watch_operators();

}  // namespace trireme::memory
