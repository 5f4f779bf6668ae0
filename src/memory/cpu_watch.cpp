// LibTorch's CPU allocations on their way to the leak watch: an allocator in front of the one that is there.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>

#include <atomic>
#include <mutex>

#include "base/log.h"
#include "memory/track/leak_watch.h"
#include "trireme/memory/leak_watch.h"

namespace trireme::memory {
namespace {

std::atomic<LeakWatch*> g_watch{nullptr};
std::atomic<c10::DeleterFnPtr> g_inner_deleter{nullptr};

void watched_delete(void* block) {
  if (LeakWatch* watch = g_watch.load(std::memory_order_acquire)) watch->freed(block);
  g_inner_deleter.load(std::memory_order_relaxed)(block);
}

class WatchedAllocator final : public c10::Allocator {
 public:
  explicit WatchedAllocator(c10::Allocator* inner) : inner_(inner) { g_inner_deleter.store(inner->raw_deleter()); }

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = inner_->allocate(bytes);
    // Blocks that are freed in a way of their own (the gradient arena's) stay as they are.
    if (block.get() != nullptr && block.get() == block.get_context() &&
        block.compare_exchange_deleter(inner_->raw_deleter(), &watched_delete)) {
      g_watch.load(std::memory_order_acquire)->allocated(block.get(), bytes, c10::GradMode::is_enabled());
    }
    return block;
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &watched_delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  c10::Allocator* inner_;
};

}  // namespace

void start_leak_watch(const LeakWatchOptions& options) {
  static std::once_flag once;
  std::call_once(once, [&] {
    c10::Allocator* inner = c10::GetCPUAllocator();
    if (inner->raw_deleter() == nullptr) {
      log::warn("memory",
                "the CPU allocator of this process frees blocks in a way of its own; nothing is watched.");
      return;
    }
    // Never freed: tensors are freed until the very end of the process.
    g_watch.store(new LeakWatch(options), std::memory_order_release);
    constexpr uint8_t kPriority = 100;  // the gradient arena's; the later one stands in front
    c10::SetCPUAllocator(new WatchedAllocator(inner), kPriority);
  });
}

bool leak_watch_is_on() noexcept { return g_watch.load(std::memory_order_relaxed) != nullptr; }

std::vector<Growth> end_leak_watch_step() {
  LeakWatch* watch = g_watch.load(std::memory_order_acquire);
  if (watch == nullptr) return {};
  std::vector<Growth> found = watch->end_step();
  for (const Growth& growth : found) log::warn("memory", growth.text());
  return found;
}

}  // namespace trireme::memory
