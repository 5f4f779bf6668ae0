// Finds the first operation of a process that makes a NaN or an infinity, and says which module it belongs to.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace trireme::parallel {

/// Purpose        While it lives, looks at what every operator of this process reads and writes, and logs an error at the first NaN or +Inf that
///                was made out of finite values: the operator, the module, the line of the program, shapes and step. -Inf alone is taken for a
///                mask. Where a tensor came in with one (from the data, from a file), that is said instead.
/// Cost           reads every tensor of every operator once more: for a run that went wrong, not for every run. CPU tensors.
/// Thread safety  one instance at a time in a process.
///
/// DistributedDataParallel makes one where TRIREME_CHECK_FINITE is set to 1.
class FiniteCheck {
 public:
  /// The names tell the module: "head.weight" belongs to module "head".
  explicit FiniteCheck(const std::vector<std::pair<std::string, at::Tensor>>& parameters);
  ~FiniteCheck();
  FiniteCheck(const FiniteCheck&) = delete;
  FiniteCheck& operator=(const FiniteCheck&) = delete;

  /// What was logged; empty: all was finite so far.
  [[nodiscard]] static std::string first_fault();
};

}  // namespace trireme::parallel
