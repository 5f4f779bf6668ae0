#include "trireme/parallel/finite_check.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/log.h"
#include "base/str.h"
#include "comm/step.h"
#include "comm/tensor_check.h"
#include "memory/track/call_site.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

struct State {
  std::atomic<bool> on{false};
  std::mutex mutex;
  std::map<const void*, std::string> parameters;  // by storage
  std::string fault;
  at::CallbackHandle handle = 0;
};
State& state() {
  static auto* instance = new State;  // callbacks may run until the very end of the process
  return *instance;
}

/// The parameter that an operator of this thread has read last.
thread_local std::string t_parameter;

/// What has no value yet, or is filled with infinities on purpose.
bool makes_no_values(std::string_view name) {
  for (const std::string_view part : {"empty", "resize", "set_", "fill", "full"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

struct Count {
  int64_t not_finite = 0;
  bool nan = false;
};

template <typename Scalar>
Count count_of(const at::Tensor& tensor) {
  Count count;
  const auto* values = static_cast<const Scalar*>(tensor.const_data_ptr());
  const int64_t n = tensor.numel();
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>(values[i]);
    if (std::isfinite(value) || (std::isinf(value) && value < 0)) continue;
    ++count.not_finite;
    count.nan = count.nan || std::isnan(value);
  }
  return count;
}

// Not by operators of ATen: they would be seen by this very check.
Count not_finite(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != at::kStrided ||
      !tensor.is_non_overlapping_and_dense())
    return {};
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return count_of<float>(tensor);
    case at::kDouble:
      return count_of<double>(tensor);
    case at::kHalf:
      return count_of<at::Half>(tensor);
    case at::kBFloat16:
      return count_of<at::BFloat16>(tensor);
    default:
      return {};
  }
}

template <typename Values, typename Visit>
void for_each_tensor(const Values& values, const Visit& visit) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) visit(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
    }
  }
}

/// What an operator was given, seen before it ran, since it may write over it.
struct Given final : at::ObserverContext {
  std::string shapes;
  std::string faulty;  // the first input that was not finite already
};

std::string line_of_the_program() {
  std::array<void*, 64> stack;
  const size_t depth = memory::capture_stack(stack);
  const std::span<void* const> frames(stack.data(), depth);
  const size_t user = memory::user_frame(frames);
  if (user == 0) return "";  // a thread of autograd: the program is not on its stack
  return memory::describe_frame(stack[user]).text();
}

// What an operator writes into may hold anything before.
bool is_written(const at::RecordFunction& call, size_t argument) {
  const std::optional<c10::FunctionSchema> schema = call.operator_schema();
  if (!schema || argument >= schema->arguments().size()) return false;
  const c10::AliasInfo* alias = schema->arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& call) {
  if (!state().on.load(std::memory_order_relaxed)) return nullptr;
  auto given = std::make_unique<Given>();
  const c10::ArrayRef<const c10::IValue> inputs = call.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    for_each_tensor(inputs.slice(i, 1), [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (tensor.has_storage()) {
        const auto parameter = state().parameters.find(tensor.storage().unsafeGetStorageImpl());
        if (parameter != state().parameters.end()) t_parameter = parameter->second;
      }
      given->shapes += str(given->shapes.empty() ? "" : ", ", comm::describe(tensor));
      if (!given->faulty.empty() || not_finite(tensor).not_finite == 0 || is_written(call, i)) return;
      given->faulty = comm::describe(tensor);
    });
  }
  return given;
}

void after(const at::RecordFunction& call, at::ObserverContext* context) {
  const auto* given = static_cast<const Given*>(context);
  if (given == nullptr || !state().on.load(std::memory_order_relaxed) || makes_no_values(call.name())) return;
  Count count;
  std::string output;
  for_each_tensor(call.outputs(), [&](const at::Tensor& tensor) {
    if (count.not_finite > 0) return;
    count = not_finite(tensor);
    if (count.not_finite > 0) output = str(comm::describe(tensor), ", ", count.not_finite, " of ", tensor.numel());
  });
  if (count.not_finite == 0 && given->faulty.empty()) return;
  if (!state().on.exchange(false)) return;  // another thread was first
  const size_t dot = t_parameter.rfind('.');
  const std::string module = t_parameter.empty() ? "before any module's parameters were used"
                             : dot == std::string::npos
                                 ? str("at parameter '", t_parameter, "' of the model itself")
                                 : str("in module '", t_parameter.substr(0, dot),
                                       "' or what follows it (last parameter read: '", t_parameter, "')");
  const std::string line = line_of_the_program();
  std::string text = str("step ", comm::current_step(), ": ");
  if (given->faulty.empty()) {
    text += str(call.name(), " made the first ", count.nan ? "NaN" : "infinity", " out of finite values (", output,
                "; inputs ", given->shapes, "), ");
  } else {
    text += str("an input of ", call.name(), " was not finite when it came (", given->faulty,
                "), and no operator before had made it so: look at the data, or at what was loaded; ");
  }
  text += module;
  if (!line.empty()) text += str(", called from ", line);
  {
    const std::lock_guard lock(state().mutex);
    state().fault = text;
  }
  log::error("parallel", text);
}

}  // namespace

FiniteCheck::FiniteCheck(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.handle != 0) {
    throw Error(ErrorKind::kUnsupported,
                "[parallel.finite_check] a process has one finite check at a time; another is on.");
  }
  all.parameters.clear();
  for (const auto& [name, tensor] : parameters) {
    if (tensor.defined() && tensor.has_storage()) all.parameters.emplace(tensor.storage().unsafeGetStorageImpl(), name);
  }
  all.fault.clear();
  all.on.store(true);
  all.handle = at::addGlobalCallback(at::RecordFunctionCallback(&before, &after)
                                         .needsInputs(true)
                                         .needsOutputs(true)
                                         .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

FiniteCheck::~FiniteCheck() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.on.store(false);
  at::removeCallback(all.handle);
  all.handle = 0;
}

std::string FiniteCheck::first_fault() {
  const std::lock_guard lock(state().mutex);
  return state().fault;
}

}  // namespace trireme::parallel
