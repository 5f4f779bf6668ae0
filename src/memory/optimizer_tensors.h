// What an optimizer of LibTorch keeps from step to step. Its classes have no common way to ask for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace trireme::memory {

struct OptimizerTensor {
  const void* parameter;  ///< its TensorImpl
  std::string name;       ///< "exp_avg"
  at::Tensor tensor;
};

/// Of Adam, AdamW, SGD, RMSprop, Adagrad and LBFGS; of other optimizers nothing.
[[nodiscard]] std::vector<OptimizerTensor> optimizer_tensors(const torch::optim::Optimizer& optimizer);

}  // namespace trireme::memory
