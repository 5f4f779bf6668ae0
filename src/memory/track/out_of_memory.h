// Memory ran out: who held it, and what would make it fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/memory/memory_report.h"

namespace trireme::memory {

struct OutOfMemory {
  MemoryReport held;
  bool at_that_moment =
      true;           ///< false: `held` was taken after the stack had unwound, and its highest values are what is known
  int64_t asked = 0;  ///< 0: unknown
  bool in_forward = false;  ///< the request was for an activation
  std::string module;       ///< whose operator asked; empty: unknown
  int64_t available = 0;    ///< of the host, under its limits
  int64_t capacity = 0;
  std::string limit;  ///< what bounds both: "the host's memory", "RLIMIT_AS", "the cgroup"
  int rank = 0, world_size = 1;
  std::string error;  ///< the first line of the allocator's own words
};

/// One change to the program.
struct Saving {
  std::string change;
  int64_t bytes = 0;  ///< estimated
};

/// Those that apply, the largest first. Savings of one category do not add up.
///
/// Formulas  A activations, S optimizer state, G gradients, C communication, R the request if it is for an activation, L modules with activations, n ranks.
///           half the batch (A + R) / 2; bf16 activations (A + R) / 2; recompute (A + R)(1 - 2 / sqrt L), for L > 4 (Chen et al. 2016: sqrt L segments);
///           sharding over n ranks S (1 - 1 / n), over two when n is 1; 8-bit state 3 S / 4; no gradients during forward G; gradients in their bucket
///           min(C, G).
[[nodiscard]] std::vector<Saving> possible_savings(const OutOfMemory& failure);

/// Several lines; the first is the message.
[[nodiscard]] std::string out_of_memory_text(const OutOfMemory& failure);

/// Fills available, capacity and limit: the least of the host's memory, RLIMIT_AS and the cgroup's limit.
void look_at_limits(OutOfMemory& failure);

}  // namespace trireme::memory
