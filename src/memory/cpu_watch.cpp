// The leak watch on LibTorch's CPU allocations.
#include <c10/core/GradMode.h>

#include <atomic>
#include <mutex>

#include "base/log.h"
#include "memory/cpu_hook.h"
#include "memory/leak_watch_switch.h"
#include "memory/track/leak_watch.h"
#include "trireme/memory/leak_watch.h"

namespace trireme::memory {
namespace {

std::atomic<bool> g_is_recording{true};

class LeakObserver final : public CpuObserver {
 public:
  explicit LeakObserver(const LeakWatchOptions& options) : watch(options) {}
  void allocated(const void* block, size_t bytes) noexcept override {
    if (!g_is_recording.load(std::memory_order_relaxed)) return;
    watch.allocated(block, bytes, c10::GradMode::is_enabled());
  }
  void freed(const void* block) noexcept override { watch.freed(block); }

  LeakWatch watch;
};

std::atomic<LeakObserver*> g_observer{nullptr};

}  // namespace

void start_leak_watch(const LeakWatchOptions& options) {
  static std::once_flag once;
  std::call_once(once, [&] {
    // Never freed: tensors are freed until the very end of the process.
    auto* observer = new LeakObserver(options);
    if (add_cpu_observer(*observer, /*permanent=*/true)) {
      g_observer.store(observer, std::memory_order_release);
    } else {
      delete observer;
    }
  });
}

void set_leak_watch_recording(bool on) noexcept { g_is_recording.store(on, std::memory_order_relaxed); }

bool leak_watch_is_on() noexcept { return g_observer.load(std::memory_order_relaxed) != nullptr; }

std::vector<Growth> end_leak_watch_step() {
  LeakObserver* observer = g_observer.load(std::memory_order_acquire);
  if (observer == nullptr || !g_is_recording.load(std::memory_order_relaxed)) return {};
  std::vector<Growth> found = observer->watch.end_step();
  for (const Growth& growth : found) log::warn("memory", growth.text());
  return found;
}

}  // namespace trireme::memory
