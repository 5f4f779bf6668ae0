#include "memory/track/allocation_history.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>

#include "memory/track/call_site.h"

namespace trireme::memory {
namespace {

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int64_t available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  std::string unit;
  while (meminfo >> name >> kib >> unit) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

}  // namespace

AllocationHistory::AllocationHistory(size_t max_entries, bool stacks)
    : max_entries_(std::max<size_t>(1, max_entries)), with_stacks_(stacks) {
  std::array<void*, 4> warm_up;
  (void)capture_stack(warm_up);  // the first stack of a process loads the unwinder, which allocates
  ring_.reserve(max_entries_);
}

// With the mutex held.
void AllocationHistory::add(const HistoryEvent& event) {
  if (ring_.size() < max_entries_) {
    ring_.push_back(event);
  } else {
    ring_[recorded_ % max_entries_] = event;
  }
  ++recorded_;
}

void AllocationHistory::allocated(const void* block, size_t bytes) noexcept {
  try {
    Stack stack;
    if (with_stacks_) {
      std::array<void*, kMostDepth> frames;
      const size_t depth = capture_stack(frames);
      stack.assign(frames.begin(), frames.begin() + static_cast<ptrdiff_t>(depth));
    }
    HistoryEvent event;
    event.block = block;
    event.bytes = static_cast<int64_t>(bytes);
    const std::lock_guard lock(mutex_);
    event.time_us = now_us();  // in the lock, so that the ring's times go up
    if (!stack.empty()) {
      auto known = stack_indices_.find(stack);
      if (known == stack_indices_.end() && stacks_.size() < kMostStacks) {
        known = stack_indices_.emplace(stack, static_cast<uint32_t>(stacks_.size())).first;
        stacks_.push_back(std::move(stack));
      }
      event.stack = known == stack_indices_.end() ? 0 : known->second;
    }
    add(event);
    alive_[block] = event;
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory to record it; the allocation itself is well
  }
}

void AllocationHistory::freed(const void* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = alive_.find(block);
  if (it == alive_.end()) return;  // made before the recording
  HistoryEvent event = it->second;
  alive_.erase(it);
  event.action = HistoryEvent::Action::kFree;
  event.time_us = now_us();
  add(event);  // the ring has its memory
}

void AllocationHistory::refused(size_t bytes) noexcept {
  try {
    allocated(nullptr, bytes);
    const int64_t available = available_bytes();
    const std::lock_guard lock(mutex_);
    const auto it = alive_.find(nullptr);
    if (it == alive_.end()) return;
    alive_.erase(it);
    // Another thread's event may have come behind it.
    for (size_t back = 1; back <= ring_.size(); ++back) {
      HistoryEvent& event = ring_[(recorded_ - back) % max_entries_];
      if (event.block != nullptr || event.action != HistoryEvent::Action::kAlloc) continue;
      event.action = HistoryEvent::Action::kOutOfMemory;
      event.free_bytes = available;
      return;
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): as above
  }
}

HistoryCopy AllocationHistory::copy() const {
  HistoryCopy copy;
  {
    const std::lock_guard lock(mutex_);
    copy.recorded = recorded_;
    copy.events.reserve(ring_.size());
    const size_t first = recorded_ > ring_.size() ? recorded_ % max_entries_ : 0;
    for (size_t i = 0; i < ring_.size(); ++i) copy.events.push_back(ring_[(first + i) % ring_.size()]);
    copy.alive.reserve(alive_.size());
    for (const auto& [block, event] : alive_) copy.alive.push_back(event);
    copy.stacks = stacks_;
  }
  std::sort(copy.alive.begin(), copy.alive.end(), [](const auto& a, const auto& b) { return a.block < b.block; });
  return copy;
}

}  // namespace trireme::memory
