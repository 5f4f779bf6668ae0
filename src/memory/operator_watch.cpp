#include "memory/operator_watch.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <mutex>
#include <shared_mutex>

#include "memory/tracked_blocks.h"

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

}  // namespace

std::optional<BlockLabel> running_label() noexcept {
  return t_running.depth > 0 ? std::optional(t_running.label) : std::nullopt;
}

at::CallbackHandle watch_operators() {
  return at::addGlobalCallback(at::RecordFunctionCallback(&enter_operator, &leave_operator)
                                   .needsInputs(true)
                                   .scopes({at::RecordScope::FUNCTION}));
}

}  // namespace trireme::memory
