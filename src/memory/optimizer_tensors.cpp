#include "memory/optimizer_tensors.h"

#include <torch/optim.h>

namespace trireme::memory {
namespace {

using Tensors = std::vector<std::pair<const char*, at::Tensor>>;

Tensors tensors_of(const torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  if (const auto* adam = dynamic_cast<const AdamParamState*>(&state))
    return {
        {"exp_avg", adam->exp_avg()}, {"exp_avg_sq", adam->exp_avg_sq()}, {"max_exp_avg_sq", adam->max_exp_avg_sq()}};
  if (const auto* adam = dynamic_cast<const AdamWParamState*>(&state))
    return {
        {"exp_avg", adam->exp_avg()}, {"exp_avg_sq", adam->exp_avg_sq()}, {"max_exp_avg_sq", adam->max_exp_avg_sq()}};
  if (const auto* sgd = dynamic_cast<const SGDParamState*>(&state))
    return {{"momentum_buffer", sgd->momentum_buffer()}};
  if (const auto* rms = dynamic_cast<const RMSpropParamState*>(&state)) {
    return {
        {"square_avg", rms->square_avg()}, {"momentum_buffer", rms->momentum_buffer()}, {"grad_avg", rms->grad_avg()}};
  }
  if (const auto* adagrad = dynamic_cast<const AdagradParamState*>(&state)) return {{"sum", adagrad->sum()}};
  if (const auto* lbfgs = dynamic_cast<const LBFGSParamState*>(&state)) {
    Tensors all = {{"d", lbfgs->d()}, {"H_diag", lbfgs->H_diag()}, {"prev_flat_grad", lbfgs->prev_flat_grad()}};
    for (const at::Tensor& tensor : lbfgs->old_dirs()) all.emplace_back("old_dirs", tensor);
    for (const at::Tensor& tensor : lbfgs->old_stps()) all.emplace_back("old_stps", tensor);
    for (const at::Tensor& tensor : lbfgs->ro()) all.emplace_back("ro", tensor);
    if (const auto& al = lbfgs->al()) {
      for (const at::Tensor& tensor : *al) all.emplace_back("al", tensor);
    }
    return all;
  }
  return {};
}

}  // namespace

std::vector<OptimizerTensor> optimizer_tensors(const torch::optim::Optimizer& optimizer) {
  std::vector<OptimizerTensor> all;
  for (const auto& [parameter, state] : optimizer.state()) {
    if (!state) continue;
    for (auto& [name, tensor] : tensors_of(*state)) {
      if (tensor.defined()) all.push_back({parameter, name, tensor});
    }
  }
  return all;
}

}  // namespace trireme::memory
