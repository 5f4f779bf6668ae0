#include "trireme/memory/history.h"

#include <memory>
#include <mutex>

#include "base/log.h"
#include "base/replace_file.h"
#include "memory/cpu_hook.h"
#include "memory/track/allocation_history.h"
#include "trireme/base/error.h"

namespace trireme::memory {
namespace {

SnapshotStats write(const AllocationHistory& history, const std::string& path) {
  const HistoryCopy copy = history.copy();
  const std::string bytes = snapshot_pickle(copy);
  replace_file(path, bytes, "memory");
  return {copy.events.size(), copy.dropped(), copy.alive.size(), bytes.size()};
}

class HistoryObserver final : public CpuObserver {
 public:
  explicit HistoryObserver(const MemoryHistoryOptions& options)
      : history(options.max_entries, options.stacks), at_out_of_memory_(options.at_out_of_memory) {}
  void allocated(const void* block, size_t bytes) noexcept override { history.allocated(block, bytes); }
  void freed(const void* block) noexcept override { history.freed(block); }
  void refused(size_t bytes) noexcept override {
    history.refused(bytes);
    if (at_out_of_memory_.empty()) return;
    try {
      write(history, at_out_of_memory_);
      log::error("memory", "out of memory; the allocations before are in ", at_out_of_memory_,
                 ". Run 'trireme diagnose ", at_out_of_memory_, "'.");
    } catch (...) {  // NOLINT(bugprone-empty-catch): the first error is the one to tell
    }
  }

  AllocationHistory history;

 private:
  std::string at_out_of_memory_;
};

struct Recording {
  std::mutex mutex;
  std::shared_ptr<HistoryObserver> observer;

  // With the mutex held.
  void stop() {
    if (observer) remove_cpu_observer(*observer);
    observer.reset();
  }
};
// Never destroyed: tensors are freed until the very end of the process.
Recording& recording() {
  static auto* instance = new Recording;
  return *instance;
}

}  // namespace

void record_memory_history(const MemoryHistoryOptions& options) {
  if (options.max_entries == 0) {
    throw Error(
        ErrorKind::kInvalidArgument,
        "[memory.history] max_entries is 0; at least one event must be kept. Call stop_memory_history() to end.");
  }
  const std::lock_guard lock(recording().mutex);
  recording().stop();
  auto observer = std::make_shared<HistoryObserver>(options);
  if (!add_cpu_observer(*observer)) {
    throw Error(ErrorKind::kUnavailable,
                "[memory.history] the CPU allocator of this process frees blocks in a way of its own, so nothing can "
                "be recorded; LibTorch's own "
                "is required.");
  }
  recording().observer = std::move(observer);
}

void stop_memory_history() {
  const std::lock_guard lock(recording().mutex);
  recording().stop();
}

SnapshotStats dump_memory_snapshot(const std::string& path) {
  std::shared_ptr<HistoryObserver> observer;
  {
    const std::lock_guard lock(recording().mutex);
    observer = recording().observer;
  }
  if (!observer) {
    throw Error(ErrorKind::kInvalidArgument, "[memory.history] nothing is recorded, so there is nothing to write to '" +
                                                 path +
                                                 "'. Call record_memory_history() before the steps in question.");
  }
  return write(observer->history, path);
}

}  // namespace trireme::memory
