// Values of flags that no plan can have, with the divisibility that fails: what a count of "excluded by a flag" does not tell.
#pragma once

#include <string>
#include <vector>

#include "plan/search.h"

namespace trireme::plan {

/// "--dp 3 does not divide the 128 devices": a line for each value that is impossible by itself, and where all are possible a line for what
/// is impossible together. Empty where nothing is wrong.
///
/// common   devices that each kind of hosts has as a multiple (unlike hosts: the greatest common divisor); `devices` where all are alike
/// domain   devices whose links reach each other
[[nodiscard]] std::vector<std::string> impossible_values(const Constraints& constraints, const ModelNumbers& model,
                                                         const TrainingNumbers& training, int64_t devices,
                                                         int64_t common, int domain);

}  // namespace trireme::plan
