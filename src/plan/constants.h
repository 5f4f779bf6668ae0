// The constants that a prediction rests on, by name and with their source.
#pragma once

#include <string>
#include <vector>

#include "trireme/plan/plan.h"

namespace trireme::plan {

struct NamedConstant {
  std::string of;  ///< "device A100-80", "cluster selene", "software megatron-2021"
  std::string name;
  double value = 0;  ///< SI units: FLOP/s, B, B/s, s; efficiencies are shares
  std::string source;
};

/// All of one machine: data sheet first, then what was fitted. None belongs to a model or a measured row.
[[nodiscard]] std::vector<NamedConstant> constants_of(const Machine& machine);

}  // namespace trireme::plan
