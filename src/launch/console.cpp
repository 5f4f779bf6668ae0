#include "launch/console.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

namespace trireme::launch {
namespace {

constexpr size_t kFullBytes = size_t{4} * 1024 * 1024;

/// False when nobody will ever read.
bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd item{fd, POLLOUT, 0};  // somebody else has made the terminal non-blocking
      poll(&item, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

Console::Console(int room_fd) : room_fd_(room_fd) {
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
  changed_.notify_one();
  thread_.join();
}

void Console::write(int fd, std::string text) {
  if (text.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    queued_bytes_ += text.size();
    queue_.push_back({fd, std::move(text)});
  }
  changed_.notify_one();
}

bool Console::full() {
  const std::lock_guard lock(mutex_);
  was_full_ = queued_bytes_ >= kFullBytes;
  return was_full_;
}

void Console::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (!dead_[item.fd]) dead_[item.fd] = !write_all(item.fd, item.text);
    lock.lock();
    queued_bytes_ -= item.text.size();
    if (was_full_ && queued_bytes_ < kFullBytes / 2) {
      was_full_ = false;
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = ::write(room_fd_, &one, sizeof(one));
    }
  }
}

}  // namespace trireme::launch
