// Seconds for contracts ("a death is named within 1 s") on machines that have other work too.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace trireme::test {

/// Purpose  A thread wakes every 10 ms; a time is the number of its wakings in it. Where threads wait for a processor (more of them than
///          processors, a quota that is used up, a virtual machine that is stopped), this one comes late just as those do that are measured,
///          and the time is the shorter by that. On a machine with a processor to spare it is the time of the steady clock.
/// Thread safety  any thread may ask. Make it after the last fork: it is a thread.
class PulseClock {
 public:
  using Clock = std::chrono::steady_clock;

  PulseClock() : thread_([this](const std::stop_token& stop) { beat(stop); }) {}

  /// To about 10 ms. Negative when `to` is before `from`.
  [[nodiscard]] double seconds_between(Clock::time_point from, Clock::time_point to) const {
    const std::scoped_lock lock(mutex_);
    const auto first = std::upper_bound(pulses_.begin(), pulses_.end(), from);
    const auto last = std::upper_bound(pulses_.begin(), pulses_.end(), to);
    return std::chrono::duration<double>(kPulse).count() * static_cast<double>(last - first);
  }

 private:
  static constexpr std::chrono::milliseconds kPulse{10};

  void beat(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(kPulse);
      const std::scoped_lock lock(mutex_);
      pulses_.push_back(Clock::now());
    }
  }

  mutable std::mutex mutex_;
  std::vector<Clock::time_point> pulses_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace trireme::test
