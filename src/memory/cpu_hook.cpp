#include "memory/cpu_hook.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/log.h"
#include "memory/leak_watch_switch.h"
#include "memory/track/leak_watch.h"
#include "trireme/memory/leak_watch.h"

namespace trireme::memory {
namespace {

struct Observers {
  std::atomic<CpuObserver*> permanent{nullptr};
  std::atomic<int> num_others{0};
  std::shared_mutex mutex;
  std::vector<CpuObserver*> others;

  [[nodiscard]] bool any() const noexcept {
    return permanent.load(std::memory_order_acquire) != nullptr || num_others.load(std::memory_order_acquire) > 0;
  }
  template <typename Call>
  void tell(Call call) noexcept {
    if (CpuObserver* observer = permanent.load(std::memory_order_acquire)) call(*observer);
    if (num_others.load(std::memory_order_acquire) == 0) return;
    const std::shared_lock lock(mutex);
    for (CpuObserver* observer : others) call(*observer);
  }
};
// Never destroyed: tensors are freed until the very end of the process.
Observers& observers() {
  static auto* instance = new Observers;
  return *instance;
}

std::atomic<c10::DeleterFnPtr> g_plain_deleter{nullptr};  // of ordinary blocks
std::atomic<c10::DeleterFnPtr> g_raw_deleter{nullptr};    // of whatever raw_allocate() of the inner allocator gave

void watched_delete(void* block) {
  observers().tell([block](CpuObserver& observer) { observer.freed(block); });
  g_plain_deleter.load(std::memory_order_relaxed)(block);
}
void watched_raw_delete(void* block) {
  observers().tell([block](CpuObserver& observer) { observer.freed(block); });
  g_raw_deleter.load(std::memory_order_relaxed)(block);
}

class WatchedAllocator final : public c10::Allocator {
 public:
  explicit WatchedAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (!observers().any()) return inner_->allocate(bytes);
    c10::DataPtr block = allocate_or_tell(bytes);
    // Blocks that are freed in a way of their own (the gradient arena's) stay as they are.
    if (watch_free_of(block)) observers().tell([&](CpuObserver& observer) { observer.allocated(block.get(), bytes); });
    return block;
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &watched_raw_delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  c10::DataPtr allocate_or_tell(size_t bytes) {
    try {
      return inner_->allocate(bytes);
    } catch (...) {
      observers().tell([&](CpuObserver& observer) { observer.refused(bytes); });
      throw;
    }
  }

  c10::Allocator* inner_;
};

bool install() {
  static const bool installed = [] {
    c10::Allocator* inner = c10::GetCPUAllocator();
    // Behind other allocators in front of LibTorch's the blocks themselves tell how they are freed.
    const c10::DataPtr probe = inner->allocate(1);
    if (inner->raw_deleter() == nullptr || probe.get() != probe.get_context()) {
      log::warn("memory", "the CPU allocator of this process frees blocks in a way of its own; nothing is watched.");
      return false;
    }
    g_plain_deleter.store(probe.get_deleter());
    g_raw_deleter.store(inner->raw_deleter());
    constexpr uint8_t kPriority = 100;  // the gradient arena's; the later one stands in front
    c10::SetCPUAllocator(new WatchedAllocator(inner), kPriority);
    return true;
  }();
  return installed;
}

}  // namespace

bool add_cpu_observer(CpuObserver& observer, bool permanent) {
  if (!install()) return false;
  if (permanent) {
    observers().permanent.store(&observer, std::memory_order_release);
    return true;
  }
  const std::unique_lock lock(observers().mutex);
  observers().others.push_back(&observer);
  observers().num_others.fetch_add(1, std::memory_order_release);
  return true;
}

void remove_cpu_observer(CpuObserver& observer) {
  const std::unique_lock lock(observers().mutex);
  if (std::erase(observers().others, &observer) > 0) observers().num_others.fetch_sub(1, std::memory_order_release);
}

bool watch_free_of(c10::DataPtr& block) {
  return block.get() != nullptr && block.get() == block.get_context() &&
         (block.get_deleter() == &watched_delete ||
          block.compare_exchange_deleter(g_plain_deleter.load(std::memory_order_relaxed), &watched_delete));
}

}  // namespace trireme::memory

// The leak watch on LibTorch's CPU allocations.
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
