#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/str.h"
#include "checkpoint/state.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

constexpr const char* kPrefix = "optim.";

struct Parameter {
  std::string name;
  at::Tensor tensor;
  const torch::optim::OptimizerParamGroup* group = nullptr;
};

// The parameters of the optimizer, with the names that the caller gives them.
std::vector<Parameter> parameters_of(Optimizer& optimizer, const NamedParameters& named) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& [name, tensor] : named) names.emplace(tensor.unsafeGetTensorImpl(), name);
  std::vector<Parameter> parameters;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& tensor : group.params()) {
      const auto found = names.find(tensor.unsafeGetTensorImpl());
      if (found == names.end()) {
        throw Error(ErrorKind::kInvalidArgument,
                    str("[checkpoint.optimizer] parameter ", parameters.size(), " of the optimizer (shape [",
                        join(tensor.sizes()), "]) is none of the ", named.size(),
                        " named ones; all are required. Pass named_parameters() of the same model."));
      }
      parameters.push_back({found->second, tensor, &group});
    }
  }
  return parameters;
}

std::string key(const Parameter& parameter, const char* buffer) { return parameter.name + '.' + buffer; }

at::Tensor copy_like(const at::Tensor& target, const at::Tensor& source) {
  return at::empty_like(target).copy_(source);
}

void add(State& state, const Parameter& parameter, const char* buffer, const at::Tensor& tensor) {
  if (tensor.defined()) state.tensors[kPrefix + key(parameter, buffer)] = tensor.detach();
}

// One description per optimizer: how its state of one parameter becomes tensors, and how it is made of them.
struct Sgd {
  using ParamState = torch::optim::SGDParamState;
  static void save(State& state, const Parameter& parameter, const ParamState& from) {
    add(state, parameter, "momentum_buffer", from.momentum_buffer());
  }
  static std::unique_ptr<ParamState> load(Lookup& lookup, const Parameter& parameter) {
    if (!lookup.has(key(parameter, "momentum_buffer"))) return nullptr;
    auto to = std::make_unique<ParamState>();
    to->momentum_buffer(copy_like(parameter.tensor, lookup.take(key(parameter, "momentum_buffer"), parameter.tensor)));
    return to;
  }
};

template <typename State_, typename Options>
struct AdamLike {
  using ParamState = State_;
  static void save(State& state, const Parameter& parameter, const ParamState& from) {
    add(state, parameter, "exp_avg", from.exp_avg());
    add(state, parameter, "exp_avg_sq", from.exp_avg_sq());
    add(state, parameter, "max_exp_avg_sq", from.max_exp_avg_sq());
    add(state, parameter, "step", at::scalar_tensor(from.step(), at::kLong));
  }
  static std::unique_ptr<ParamState> load(Lookup& lookup, const Parameter& parameter) {
    const bool amsgrad = static_cast<const Options&>(parameter.group->options()).amsgrad();
    if (!lookup.has(key(parameter, "step")) && !lookup.has(key(parameter, "exp_avg"))) return nullptr;
    const auto take = [&](const char* buffer) {
      return copy_like(parameter.tensor, lookup.take(key(parameter, buffer), parameter.tensor));
    };
    auto to = std::make_unique<ParamState>();
    to->step(lookup.take(key(parameter, "step"), at::scalar_tensor(0, at::kLong)).template item<int64_t>());
    to->exp_avg(take("exp_avg"));
    to->exp_avg_sq(take("exp_avg_sq"));
    if (amsgrad) to->max_exp_avg_sq(take("max_exp_avg_sq"));
    return to;
  }
};
using Adam = AdamLike<torch::optim::AdamParamState, torch::optim::AdamOptions>;
using AdamW = AdamLike<torch::optim::AdamWParamState, torch::optim::AdamWOptions>;

// Calls function(description) with the one of this optimizer.
template <typename Function>
void visit(Optimizer& optimizer, Function&& function) {
  if (dynamic_cast<torch::optim::SGD*>(&optimizer) != nullptr) return function(Sgd{});
  if (dynamic_cast<torch::optim::Adam*>(&optimizer) != nullptr) return function(Adam{});
  if (dynamic_cast<torch::optim::AdamW*>(&optimizer) != nullptr) return function(AdamW{});
  throw Error(
      ErrorKind::kUnsupported,
      "[checkpoint.optimizer] the optimizer is none of SGD, Adam and AdamW, whose state is known. Put its state "
      "into State::tensors yourself.");
}

}  // namespace

void add_optimizer_state(State& state, Optimizer& optimizer, const NamedParameters& named_parameters) {
  visit(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    for (const Parameter& parameter : parameters_of(optimizer, named_parameters)) {
      const auto found = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      Kind::save(state, parameter, static_cast<const typename Kind::ParamState&>(*found->second));
    }
  });
}

void restore_optimizer_state(const State& state, Optimizer& optimizer, const NamedParameters& named_parameters) {
  visit(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    const at::NoGradGuard no_grad;
    Lookup lookup(state, kPrefix);
    std::vector<std::pair<void*, std::unique_ptr<OptimizerParamState>>> made;
    for (const Parameter& parameter : parameters_of(optimizer, named_parameters)) {
      if (auto one = Kind::load(lookup, parameter)) {
        made.emplace_back(parameter.tensor.unsafeGetTensorImpl(), std::move(one));
      }
    }
    lookup.require_all_taken();
    optimizer.state().clear();
    for (auto& [parameter, one] : made) optimizer.state()[parameter] = std::move(one);
  });
}

}  // namespace trireme::checkpoint
