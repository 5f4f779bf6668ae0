// What a published row does not print of the means that save memory.
#pragma once

#include "plan/row_reader.h"

namespace trireme::plan {

/// Which of them the row leaves open.
struct OpenMeans {
  bool zero_stage = false, recompute = false;
  bool share = false;  ///< recomputation is named, not of how many layers
};

/// Sets what is open to the least that fits into the device, since the run is known to have run, and notes it in Case::assumptions. Nothing fits: the
/// plan stays as printed. Networks by operators are left alone. Cost: at most some 100 estimates of memory.
void assume_what_fits(Case& row, const Catalog& catalog, OpenMeans open);

}  // namespace trireme::plan
