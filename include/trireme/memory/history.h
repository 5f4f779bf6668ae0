// Records allocations and frees of CPU tensors with their stacks, and writes them as a snapshot that PyTorch's memory viewer reads.
//
//   trireme::memory::record_memory_history();
//   ... some steps ...
//   trireme::memory::dump_memory_snapshot("rank0.pickle");
//
// `trireme diagnose rank0.pickle` says who holds the memory; https://pytorch.org/memory_viz and torch/cuda/_memory_viz.py draw it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme::memory {

struct MemoryHistoryOptions {
  size_t max_entries = 100'000;  ///< events that are kept, the newest; 40 bytes each
  bool stacks = true;            ///< false: some ten times cheaper, and nobody knows where
  std::string at_out_of_memory;  ///< a snapshot is written here when the CPU allocator refuses; empty: none
};

/// Starts, or starts anew. Blocks of the gradient arena are not seen: their number is fixed.
///
/// Errors   kUnavailable  the CPU allocator of this process cannot be watched.   kInvalidArgument  no entries.
/// Threads  any; those that allocate are recorded, whichever they are.
/// Cost     docs/howto/memory.md.
void record_memory_history(const MemoryHistoryOptions& options = {});
/// Ends the recording and forgets it.
void stop_memory_history();

struct SnapshotStats {
  uint64_t events = 0;   ///< in the file
  uint64_t dropped = 0;  ///< older ones
  uint64_t blocks = 0;   ///< alive
  uint64_t bytes = 0;    ///< of the file
};
/// Writes what was recorded, whole or not at all. The program goes on meanwhile but for a copy of the ring.
///
/// Errors   kInvalidArgument  nothing is recorded.   kIo  the file cannot be written.
/// Threads  any.
/// Cost     some 2 us an event and 1 ms a different frame (of large libraries).
SnapshotStats dump_memory_snapshot(const std::string& path);

}  // namespace trireme::memory
