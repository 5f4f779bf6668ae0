#include "memory/tracked_blocks.h"

#include <unistd.h>

#include <fstream>

#include "memory/operator_watch.h"

namespace trireme::memory {

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  statm >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

bool is_on_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.has_storage() && tensor.storage().nbytes() > 0;
}
const void* base_of(const at::Tensor& tensor) { return tensor.storage().data(); }

void TrackedBlocks::allocated(const void* block, size_t bytes) noexcept {
  try {
    table.allocated(block, static_cast<int64_t>(bytes), running_label().value_or(BlockLabel{}));
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory to remember it; the allocation itself is well
  }
}

void TrackedBlocks::refused(size_t bytes) noexcept {
  try {
    OutOfMemory failure;
    failure.held = table.report();
    failure.held.resident = resident_bytes();
    failure.asked = static_cast<int64_t>(bytes);
    if (const auto label = running_label()) {
      failure.in_forward = label->category == Category::kActivations;
      failure.module = table.module_name(label->module);
    }
    look_at_limits(failure);
    const std::lock_guard lock(mutex_);
    last_failure_ = std::move(failure);
  } catch (...) {  // NOLINT(bugprone-empty-catch): so little is left that nothing can be told
  }
}

std::optional<OutOfMemory> TrackedBlocks::take_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(last_failure_, std::nullopt);
}

void TrackedBlocks::label(const at::Tensor& tensor, BlockLabel label) {
  if (!is_on_cpu(tensor)) return;
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const void* base = base_of(tensor);
  if (base == nullptr || table.relabel(base, label, bytes)) return;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const bool foreign = !watch_free_of(storage->_mutable_data_ptr_no_checks());
  table.allocated(base, bytes, label, foreign);
  if (!foreign) return;
  const std::lock_guard lock(mutex_);
  foreign_.emplace_back(
      base, c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage)));
}

void TrackedBlocks::forget_the_dead() {
  const std::lock_guard lock(mutex_);
  std::erase_if(foreign_, [this](const auto& block) {
    if (!block.second.expired()) return false;
    table.foreign_freed(block.first);
    return true;
  });
}

Tracked& tracked() {
  static auto* instance = new Tracked;  // tensors are freed until the very end of the process
  return *instance;
}

void add_communication(TrackedBlocks& blocks, const void* begin, size_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  if (!blocks.table.relabel(begin, {Category::kCommunication, 0}, size)) blocks.table.add_region(begin, size);
}

}  // namespace trireme::memory
