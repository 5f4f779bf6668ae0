#include "launch/console.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>

namespace trireme::launch {
namespace {

constexpr size_t kFullBytes = size_t{4} * 1024 * 1024;

void raise(int event_fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd, &one, sizeof(one));
}

}  // namespace

Console::Console(int room_fd)
    : room_fd_(room_fd), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), ended_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  struct stat out{};
  struct stat err{};
  if (fstat(1, &out) == 0 && fstat(2, &err) == 0) same_place_ = out.st_dev == err.st_dev && out.st_ino == err.st_ino;
  // A writable pipe has room for PIPE_BUF bytes; a file takes all.
  chunk_bytes_[1] = S_ISREG(out.st_mode) ? SIZE_MAX : PIPE_BUF;
  chunk_bytes_[2] = S_ISREG(err.st_mode) ? SIZE_MAX : PIPE_BUF;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Console::~Console() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
  thread_.join();
}

void Console::wake() const { raise(wake_.get()); }

bool Console::finish(int interrupt_fd, std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
  std::array<pollfd, 2> items{pollfd{ended_.get(), POLLIN, 0}, pollfd{interrupt_fd, POLLIN, 0}};
  const auto most = std::min<int64_t>(limit.count(), INT_MAX);
  while (poll(items.data(), items.size(), static_cast<int>(most)) < 0 && errno == EINTR) {
  }
  return items[0].revents != 0;
}

void Console::drop() {
  // It waits in poll(), or even in write(): a terminal takes all of a text or blocks. Both are points of cancellation.
  pthread_cancel(thread_.native_handle());
}

void Console::write(int fd, std::string text, Form form) {
  if (text.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    const size_t place = same_place_ ? 0 : static_cast<size_t>(fd - 1);
    if (form == Form::kLines && open_line_[place]) text.insert(text.begin(), '\n');
    open_line_[place] = form == Form::kRaw && text.back() != '\n';
    queued_bytes_ += text.size();
    queues_[place].push_back({fd, next_number_++, std::move(text), 0});
  }
  wake();
}

bool Console::full() {
  const std::lock_guard lock(mutex_);
  const bool now = queued_bytes_ >= kFullBytes;
  // Kept until room_fd_ is raised: who was told "full" before waits for that, whatever is answered to others meanwhile.
  was_full_ = was_full_ || now;
  return now;
}

// AddressSanitizer does not see that a cancelled thread leaves its functions, and takes the marks around their variables for those of the
// functions that end the thread. So: no marks in what runs on it.
#define ON_CANCELLED_THREAD [[gnu::no_sanitize_address]]

/// Waits; the queue whose oldest text comes first among those that can be written, or nullptr to look again.
ON_CANCELLED_THREAD Console::Queue* Console::writable_queue(bool& stop) {
  std::array<pollfd, 3> items{pollfd{wake_.get(), POLLIN, 0}, pollfd{-1, POLLOUT, 0}, pollfd{-1, POLLOUT, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < 2; ++i) {
      if (!queues_[i].empty()) items[i + 1].fd = queues_[i].front().fd;
    }
    stop = stop_ && queues_[0].empty() && queues_[1].empty();
  }
  if (stop) return nullptr;
  poll(items.data(), items.size(), -1);
  uint64_t ignored = 0;
  if (items[0].revents != 0) {
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &ignored, sizeof(ignored));
  }
  const std::lock_guard lock(mutex_);
  Queue* chosen = nullptr;
  for (size_t i = 0; i < 2; ++i) {
    if (items[i + 1].revents == 0) continue;
    if (chosen == nullptr || queues_[i].front().number < chosen->front().number) chosen = &queues_[i];
  }
  return chosen;
}

/// Only this thread removes items, so the front may be used without the lock (a deque does not move it on push_back).
ON_CANCELLED_THREAD void Console::write_some(Queue& queue) {
  Item* item = nullptr;
  {
    const std::lock_guard lock(mutex_);
    item = &queue.front();
  }
  const auto fd = static_cast<size_t>(item->fd);
  if (!dead_[fd]) {
    const size_t size = std::min(item->text.size() - item->written, chunk_bytes_[fd]);
    const ssize_t written = ::write(item->fd, item->text.data() + item->written, size);
    if (written > 0) item->written += static_cast<size_t>(written);
    dead_[fd] = written < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
  }
  if (!dead_[fd] && item->written < item->text.size()) return;
  const std::lock_guard lock(mutex_);
  queued_bytes_ -= item->text.size();
  queue.pop_front();
  if (was_full_ && queued_bytes_ < kFullBytes / 2) {
    was_full_ = false;
    raise(room_fd_);
  }
}

ON_CANCELLED_THREAD void Console::run() {
  bool stop = false;
  while (!stop) {
    if (Queue* queue = writable_queue(stop)) write_some(*queue);
  }
  raise(ended_.get());
}

}  // namespace trireme::launch
