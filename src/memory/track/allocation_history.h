// The last allocations and frees with their stacks, and what is alive of those that were recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/track/call_site.h"

namespace trireme::memory {

struct HistoryEvent {
  enum class Action : uint8_t { kAlloc, kFree, kOutOfMemory };
  const void* block = nullptr;
  int64_t bytes = 0;
  int64_t time_us = 0;  ///< since 1970
  uint32_t stack = 0;   ///< index into stacks; of an allocation, also at its free
  Action action = Action::kAlloc;
  int64_t free_bytes = 0;  ///< kOutOfMemory: what the host had left
};
static_assert(sizeof(HistoryEvent) == 40);

/// A copy, for writing while the program goes on.
struct HistoryCopy {
  std::vector<HistoryEvent> events;  ///< oldest first
  std::vector<HistoryEvent> alive;   ///< by address
  std::vector<Stack> stacks;         ///< 0 is empty; events beyond kMostStacks different ones have none
  uint64_t recorded = 0;
  [[nodiscard]] uint64_t dropped() const { return recorded - events.size(); }
};

/// Purpose        A ring: the newest events stay. Memory: 40 bytes an event of the ring, about 72 a living block, and each different stack once.
/// Thread safety  All members.
/// Cost           an allocation: a stack (some us, by its depth; nothing where stacks are off) and two inserts; a free: a look-up.
class AllocationHistory {
 public:
  AllocationHistory(size_t max_entries, bool stacks);

  void allocated(const void* block, size_t bytes) noexcept;
  void freed(const void* block) noexcept;
  void refused(size_t bytes) noexcept;
  [[nodiscard]] HistoryCopy copy() const;

 private:
  static constexpr size_t kMostDepth = 40;

  void add(const HistoryEvent& event);

  const size_t max_entries_;
  const bool with_stacks_;
  mutable std::mutex mutex_;
  std::vector<HistoryEvent> ring_;
  uint64_t recorded_ = 0;
  std::unordered_map<const void*, HistoryEvent> alive_;
  std::unordered_map<Stack, uint32_t, HashStack> stack_indices_;
  std::vector<Stack> stacks_{{}};
};

/// The pickle of torch.cuda.memory._dump_snapshot, which memory_viz reads: each living block as a segment of its own, the events as the trace of
/// device 0. A free is told as requested and completed. What memory_viz does not know stands under the key "trireme": recorded and dropped events.
/// Frames have the function, the file of the program or library with the offset in it ("prog+0x1f3a", for addr2line), and line 0.
[[nodiscard]] std::string snapshot_pickle(const HistoryCopy& history);

}  // namespace trireme::memory
