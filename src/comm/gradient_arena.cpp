#include "comm/gradient_arena.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <map>
#include <shared_mutex>

namespace trireme::comm {
namespace {

constexpr size_t kAlignment = 64;
/// Blocks of each size beyond one per gradient: a gradient that comes while the old one is still there, and temporaries.
constexpr size_t kSpareBlocks = 1;

struct Raised {
  GradientArena* arena = nullptr;
  int graph_task = -1;
};
thread_local Raised t_raised;

void report_memory(void* block, int64_t bytes) {
  c10::reportMemoryUsageToProfiler(block, bytes, 0, 0, c10::Device(c10::DeviceType::CPU));
}

// Arenas by address, for the deleter. Never destroyed: tensors of static life may be freed after it.
class Registry {
 public:
  void add(GradientArena* arena) {
    const std::unique_lock lock(mutex_);
    arenas_.push_back(arena);
  }
  void remove(GradientArena* arena) {
    const std::unique_lock lock(mutex_);
    std::erase(arenas_, arena);
  }
  bool give_back(void* block) {
    GradientArena* owner = nullptr;
    {
      const std::shared_lock lock(mutex_);
      for (GradientArena* arena : arenas_) {
        if (arena->contains(block)) owner = arena;
      }
    }
    // Outside the lock: the last block takes its arena along. The arena cannot go before, since this block is out.
    if (owner == nullptr) return false;
    const size_t bytes = owner->give_back(block);
    if (c10::memoryProfilingEnabled()) report_memory(block, -static_cast<int64_t>(bytes));
    return true;
  }

 private:
  std::shared_mutex mutex_;
  std::vector<GradientArena*> arenas_;
};
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

class ArenaAllocator final : public c10::Allocator {
 public:
  explicit ArenaAllocator(c10::Allocator* fallback) : fallback_(fallback) {
    s_fallback_deleter = fallback->raw_deleter();
  }

  at::DataPtr allocate(size_t bytes) override {
    if (t_raised.arena != nullptr) {
      if (torch::autograd::get_current_graph_task_id() != t_raised.graph_task) {
        t_raised = {};  // that backward has ended, perhaps by an exception
      } else if (void* block = t_raised.arena->take(bytes)) {
        if (c10::memoryProfilingEnabled()) report_memory(block, static_cast<int64_t>(bytes));
        return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
      }
    }
    return fallback_->allocate(bytes);
  }
  // One deleter for both kinds, as raw_allocate() needs it.
  c10::DeleterFnPtr raw_deleter() const override { return s_fallback_deleter == nullptr ? nullptr : &free_any; }
  void copy_data(void* to, const void* from, size_t bytes) const override { fallback_->copy_data(to, from, bytes); }

 private:
  static void free_block(void* block) { registry().give_back(block); }
  static void free_any(void* block) {
    if (!registry().give_back(block)) s_fallback_deleter(block);
  }

  static inline c10::DeleterFnPtr s_fallback_deleter = nullptr;
  c10::Allocator* fallback_;
};

void install_allocator() {
  // Leaked: the process may allocate until its very end.
  static const bool installed = [] {
    c10::SetCPUAllocator(new ArenaAllocator(c10::GetCPUAllocator()), 100);
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace

std::vector<GradientArena::Class> GradientArena::classes_of(std::span<const size_t> gradient_bytes) {
  std::map<size_t, size_t> counts;
  for (const size_t bytes : gradient_bytes) {
    if (bytes > 0) ++counts[bytes];
  }
  std::vector<Class> classes;
  for (const auto& [bytes, count] : counts) {
    Class entry;
    entry.bytes = bytes;
    entry.stride = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    entry.num_blocks = count + kSpareBlocks;
    classes.push_back(std::move(entry));
  }
  return classes;
}

size_t GradientArena::part_bytes(std::span<const size_t> gradient_bytes) {
  size_t total = 0;
  for (const Class& entry : classes_of(gradient_bytes)) total += entry.stride * entry.num_blocks;
  return std::max<size_t>(total, 1);
}

std::shared_ptr<GradientArena> GradientArena::make(SharedParts shared, int rank,
                                                   std::span<const size_t> gradient_bytes) {
  install_allocator();
  std::shared_ptr<GradientArena> arena(new GradientArena(std::move(shared), rank, gradient_bytes));
  arena->weak_ = arena;
  return arena;
}

GradientArena::GradientArena(SharedParts shared, int rank, std::span<const size_t> gradient_bytes)
    : shared_(std::move(shared)),
      begin_(shared_.part(rank)),
      end_(begin_ + shared_.part_bytes),
      classes_(classes_of(gradient_bytes)) {
  std::byte* at = begin_;
  for (Class& entry : classes_) {
    entry.begin = at;
    entry.free.reserve(entry.num_blocks);
    for (size_t i = entry.num_blocks; i > 0; --i) entry.free.push_back(at + (i - 1) * entry.stride);
    at += entry.num_blocks * entry.stride;
  }
  registry().add(this);
}

GradientArena::~GradientArena() {
  registry().remove(this);
  if (t_raised.arena == this) t_raised = {};
}

void GradientArena::raise(int graph_task) noexcept { t_raised = {this, graph_task}; }
void GradientArena::lower() noexcept { t_raised = {}; }

bool GradientArena::contains(const void* block) const noexcept {
  return block >= static_cast<const void*>(begin_) && block < static_cast<const void*>(end_);
}

void* GradientArena::take(size_t bytes) noexcept {
  const auto entry = std::lower_bound(classes_.begin(), classes_.end(), bytes,
                                      [](const Class& a, size_t wanted) { return a.bytes < wanted; });
  if (entry == classes_.end() || entry->bytes != bytes) return nullptr;
  const std::lock_guard lock(mutex_);
  if (entry->free.empty()) return nullptr;
  void* block = entry->free.back();
  entry->free.pop_back();
  if (num_taken_++ == 0) self_ = weak_.lock();
  return block;
}

size_t GradientArena::give_back(void* block) noexcept {
  std::shared_ptr<GradientArena> last;  // destroys this after the lock is gone
  const std::lock_guard lock(mutex_);
  const auto entry =
      std::upper_bound(classes_.begin(), classes_.end(), block,
                       [](const void* wanted, const Class& a) { return wanted < static_cast<const void*>(a.begin); }) -
      1;
  const size_t bytes = entry->bytes;
  entry->free.push_back(block);
  if (--num_taken_ == 0) last = std::move(self_);
  return bytes;
}

}  // namespace trireme::comm
