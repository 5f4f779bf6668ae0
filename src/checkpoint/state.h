// Comparing what a checkpoint holds with what a program has, before anything is changed.
#pragma once

#include <set>
#include <string>

#include "trireme/checkpoint/checkpoint.h"

namespace trireme::checkpoint {

/// Looks tensors up below one prefix ("model."), and notices those that nobody asked for.
class Lookup {
 public:
  Lookup(const State& state, std::string prefix) : state_(state), prefix_(std::move(prefix)) {}

  [[nodiscard]] bool has(const std::string& name) const { return state_.tensors.contains(prefix_ + name); }

  /// The tensor that is to replace `target`. kMismatch when it is missing or of another shape or dtype.
  const at::Tensor& take(const std::string& name, const at::Tensor& target);

  /// kMismatch with the first tensor below the prefix that was not taken.
  void require_all_taken() const;

 private:
  const State& state_;
  std::string prefix_;
  std::set<std::string> taken_;
};

}  // namespace trireme::checkpoint
