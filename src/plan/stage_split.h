// Layers over unlike pipeline ranks: uneven on purpose.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "plan/numbers.h"

namespace trireme::plan {

struct SplitRank {
  /// What one micro-step takes of all layers before layer i on this rank's devices, i from 0 to the number of layers.
  std::span<const Seconds> before;
  Seconds fixed;  ///< what the rank does beside its layers: embedding, head
  int most = 0;   ///< layers that fit into its memory
};

/// A contiguous split of the layers, at least one for each rank, that makes the slowest rank as fast as possible; among equals the last ranks
/// take most, since the first ones keep more micro-steps in flight. Empty where memory leaves none.
///
/// Cost     about 30 passes over the ranks.
[[nodiscard]] std::vector<int> split_layers(std::span<const SplitRank> ranks);

/// Most layers that a rank holds within `limit`, taken from the middle of the model; 0 = not one.
[[nodiscard]] int most_layers(const ModelNumbers& model, const MachineNumbers& machine, const TrainingNumbers& training,
                              const Plan& plan, int rank, Bytes limit);

}  // namespace trireme::plan
