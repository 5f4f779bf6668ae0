// Writes to the launcher's own stdout and stderr from a thread of its own: a terminal that is stopped or a slow reader
// must not keep the launcher from noticing a death, nor one stream keep the other back.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "base/fd.h"

namespace trireme::launch {

/// Invariants     each stream keeps its order; where both lead to the same place, they keep that of the calls.
/// Thread safety  write() and full() from any thread.
class Console {
 public:
  /// `room_fd`: an eventfd that is raised when the queue has room again.
  explicit Console(int room_fd);
  /// Writes what is queued, unless it was dropped, then ends. [blocking]
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// `fd` is 1 or 2. Never blocks; once the reader of a stream is gone its text is dropped (the log files have it).
  /// kLines starts on a line of its own, also where bytes of kRaw left one open: a progress bar that is being drawn.
  enum class Form { kLines, kRaw };
  void write(int fd, std::string text, Form form = Form::kLines);
  /// True: give it nothing more until room_fd is raised.
  [[nodiscard]] bool full();

  /// Nothing more comes. True when all is written; false when `interrupt_fd` can be read or `limit` has passed before
  /// (negative: no limit). May be called again. [blocking]
  [[nodiscard]] bool finish(int interrupt_fd, std::chrono::milliseconds limit);
  /// What is not written yet never will be: a reader that has stopped reading keeps nobody.
  void drop();

 private:
  struct Item {
    int fd = 1;
    uint64_t number = 0;
    std::string text;
    size_t written = 0;
  };
  using Queue = std::deque<Item>;

  void run();
  void wake() const;
  [[nodiscard]] Queue* writable_queue(bool& stop);
  void write_some(Queue& queue);

  int room_fd_;
  Fd wake_;
  Fd ended_;  ///< readable when the thread is about to end
  bool same_place_ = false;
  std::array<size_t, 3> chunk_bytes_{};  ///< by fd: what a writable stream takes without blocking
  std::mutex mutex_;
  std::array<Queue, 2> queues_;
  std::array<bool, 2> open_line_{};  ///< by queue
  uint64_t next_number_ = 0;
  size_t queued_bytes_ = 0;
  bool was_full_ = false;
  bool stop_ = false;
  std::array<bool, 3> dead_{};
  std::thread thread_;
};

}  // namespace trireme::launch
