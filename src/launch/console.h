// Writes to the launcher's own stdout and stderr from a thread of its own: a terminal that is stopped or a slow reader
// must not keep the launcher from noticing a death.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace trireme::launch {

/// Thread safety  write() from any thread. One stream's text keeps its order, and both streams' that of the calls.
class Console {
 public:
  /// `room_fd`: an eventfd that is raised when the queue has room again.
  explicit Console(int room_fd);
  /// Writes what is queued, then ends. [blocking]
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// `fd` is 1 or 2. Never blocks; once the reader of a stream is gone its text is dropped (the log files have it).
  void write(int fd, std::string text);
  /// True: give it nothing more until room_fd is raised.
  [[nodiscard]] bool full();

 private:
  struct Item {
    int fd = 1;
    std::string text;
  };
  void run();

  int room_fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  size_t queued_bytes_ = 0;
  bool was_full_ = false;
  bool stop_ = false;
  bool dead_[3] = {false, false, false};
  std::thread thread_;
};

}  // namespace trireme::launch
