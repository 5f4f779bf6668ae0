// Marking the time in which a rank waits for its next batch, so that a slow data loader is named as such.
#pragma once

#include <cstdint>

namespace trireme::profile {

/// Purpose       Its lifetime is time that this rank waited for data. A rank that others wait for in every step is then told to be late "in data
///               loading" (docs/howto/slow.md), and `trireme trace report` on the run folder counts it as data wait.
/// Thread safety Of its own thread, which should be the one that trains: what a thread of the loader does beside it is no wait. The last 126 are kept.
/// Cost          two readings of the clock, a lock, 24 bytes written; no system call.
class DataWait {
 public:
  DataWait() noexcept;
  ~DataWait();
  DataWait(const DataWait&) = delete;
  DataWait& operator=(const DataWait&) = delete;

 private:
  uint64_t start_ns_;
};

/// Around the one place where the training loop takes its batch. [local]
///
///     auto batch = [&] { const auto waiting = trireme::data_wait(); return loader.next(); }();
[[nodiscard]] inline DataWait data_wait() noexcept { return {}; }

}  // namespace trireme::profile
