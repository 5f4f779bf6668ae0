// std::atomic and the kernel's futex, as sync.h wants them.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace trireme::comm {

struct FutexAtomics {
  using Word = std::atomic<uint32_t>;
  static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(uint32_t), "words must work across processes");

  /// Not FUTEX_PRIVATE: the word may be in memory shared with another process.
  static void wait(Word& word, uint32_t expected, std::chrono::milliseconds limit) {
    const timespec duration = {.tv_sec = limit.count() / 1000, .tv_nsec = limit.count() % 1000 * 1'000'000};
    syscall(SYS_futex, &word, FUTEX_WAIT, expected, &duration, nullptr, 0);
  }
  static void wake_all(Word& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
};

}  // namespace trireme::comm
