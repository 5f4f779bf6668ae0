#include "memory/tracked_blocks.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <unistd.h>

#include <fstream>
#include <memory>

namespace trireme::memory {
namespace {

struct Running {
  int depth = 0;  // of operators that call operators: the outermost one counts
  BlockLabel label;
};
thread_local Running t_running;

class InputJudge {
 public:
  explicit InputJudge(TrackedBlocks& blocks) : blocks_(blocks) {}

  void look_at(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    BlockLabel label;
    if (tensor.has_storage()) label = blocks_.table.label_of(base_of(tensor)).value_or(label);
    switch (label.category) {
      case Category::kParameters:
        parameter_ = true;
        if (module_ == 0) module_ = label.module;
        break;
      case Category::kGradients:
      case Category::kOptimizerState:
        update_ = true;
        break;
      case Category::kActivations:
        activation_ = true;
        if (input_module_ == 0) input_module_ = label.module;
        break;
      case Category::kCommunication:
      case Category::kOther:
        data_ = true;
        activation_ = activation_ || tensor.requires_grad();
        break;
    }
  }

  [[nodiscard]] BlockLabel label() const {
    if (update_ || !(activation_ || (parameter_ && (data_ || c10::GradMode::is_enabled())))) return {};
    return {Category::kActivations, module_ != 0 ? module_ : input_module_};
  }

 private:
  TrackedBlocks& blocks_;
  bool parameter_ = false, update_ = false, activation_ = false, data_ = false;
  uint32_t module_ = 0, input_module_ = 0;
};

struct Entered final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> enter_operator(const at::RecordFunction& function) {
  if (t_running.depth == 0) {
    t_running.label = {};
    const std::shared_lock lock(tracked().mutex);
    if (tracked().blocks == nullptr) return nullptr;
    if (torch::autograd::get_current_graph_task_id() == -1) {
      InputJudge judge(*tracked().blocks);
      for (const c10::IValue& input : function.inputs()) {
        if (input.isTensor()) {
          judge.look_at(input.toTensor());
        } else if (input.isTensorList()) {
          for (const at::Tensor& tensor : input.toTensorVector()) judge.look_at(tensor);
        }
      }
      t_running.label = judge.label();
    }
  }
  auto entered = std::make_unique<Entered>();
  ++t_running.depth;
  return entered;
}

void leave_operator(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  if (context != nullptr) --t_running.depth;
}

/// Of what is allocated on this thread at this moment; nothing outside of operators, and while none are watched.
std::optional<BlockLabel> running_label() noexcept {
  return t_running.depth > 0 ? std::optional(t_running.label) : std::nullopt;
}

}  // namespace

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

at::CallbackHandle watch_operators() {
  return at::addGlobalCallback(at::RecordFunctionCallback(&enter_operator, &leave_operator)
                                   .needsInputs(true)
                                   .scopes({at::RecordScope::FUNCTION}));
}

}  // namespace trireme::memory
