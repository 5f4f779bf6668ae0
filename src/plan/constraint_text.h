// Constraints as people say them: "10 % spare", "no tp across nodes", "pp <= 8".
#pragma once

#include <string_view>

#include "plan/search.h"

namespace trireme::plan {

/// Adds to `constraints` what `text` says; several are separated by ';'. Case and blanks do not matter.
///
/// AXIS <= N, >= N, <, >, = N,N   of dp, tp, pp, cp, ep, micro-batch, zero, virtual-stages
/// N % spare                      share of a device's memory that stays free
/// no tp across nodes             (hosts, domains); without the "no": allowed
/// no AXIS                        degree 1 (zero: stage 0)
/// no interleaving | no zero bubble | no recomputation | even stages | runnable
///
/// Errors   kConfig  a part that is none of these, with all that are.
void add_constraints(Constraints& constraints, std::string_view text);

}  // namespace trireme::plan
