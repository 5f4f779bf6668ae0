// How a thread waits for another rank: it spins only while that cannot take a core from a thread that needs one.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace trireme::comm {

/// Marks the calling thread as one that works beside a computing thread (a progress thread): it asks before it spins.
void set_background_thread(bool background) noexcept;
[[nodiscard]] bool is_background_thread() noexcept;

/// Purpose       Decides, per wait, how long to spin before sleeping.
/// Thread safety Any thread.
class WaitPolicy {
 public:
  /// `num_local_ranks` share this host's cores (as this process may use them: affinity and cgroup quota counted).
  explicit WaitPolicy(int num_local_ranks);
  ~WaitPolicy();
  WaitPolicy(const WaitPolicy&) = delete;
  WaitPolicy& operator=(const WaitPolicy&) = delete;

  /// Spins until `ready()` or until sleeping is the better choice; returns what ready() said last.
  template <typename Ready>
  [[nodiscard]] bool spin(Ready&& ready) const {
    if (crowded_ || is_background_thread()) return yield_a_little(ready);
    const auto start = Clock::now();
    auto next_look = start + kBlindSpin;
    while (true) {
      for (int i = 0; i < kChecksPerLook; ++i) {
        if (ready()) return true;
        pause();
      }
      const auto now = Clock::now();
      if (now < next_look) continue;
      if (now - start > kLongestSpin || !core_to_spare()) return ready();
      next_look = now + kBlindSpin * 4;
    }
  }

  [[nodiscard]] bool crowded() const noexcept { return crowded_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// A context switch there and back costs about this much, so spinning this long is never worse than twice the best.
  static constexpr std::chrono::microseconds kBlindSpin{50};
  /// Past this a sleep's wake-up no longer matters, and an idle core should idle.
  static constexpr std::chrono::milliseconds kLongestSpin{5};
  static constexpr int kChecksPerLook = 64;
  static constexpr int kYields = 4;

  template <typename Ready>
  bool yield_a_little(Ready&& ready) const {
    for (int i = 0; i < kYields; ++i) {
      if (ready()) return true;
      yield();
    }
    return ready();
  }
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static void yield() noexcept;
  /// Whether the threads that want to run are no more than the cores, now. Reads /proc/loadavg; false where that cannot be read.
  [[nodiscard]] bool core_to_spare() const noexcept;

  int num_cores_;
  bool crowded_;
  int loadavg_fd_;
};

/// Cores granted by the CPU bandwidth limits of a process's cgroup and of all above it, v1 and v2; 0 when there is none. `membership` is
/// /proc/self/cgroup or the like, `mount` where cgroups are mounted.
[[nodiscard]] double quota_cores(std::istream& membership, const std::string& mount);

/// Cores this process may use: the smaller of its affinity mask and its cgroup's CPU quota (v1 and v2), at least 1.
[[nodiscard]] int usable_cores();

}  // namespace trireme::comm
