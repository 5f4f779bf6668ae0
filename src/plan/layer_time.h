// What one micro-step costs on one device, layer by layer, before anything is said of stages, schedules and replicas.
#pragma once

#include <array>

#include "plan/numbers.h"

namespace trireme::plan {

inline constexpr Seconds kNetworkLatency{4e-5};  ///< of one hop between hosts

/// The longer of two that hide each other, smooth where they are alike: (a^6 + b^6)^(1/6).
[[nodiscard]] Seconds soft_max(Seconds a, Seconds b);

/// The forward of one layer on one rank, by cause; backward where it is no multiple of it.
struct LayerTime {
  Seconds matmul_forward, matmul_backward;
  Seconds matmul_weight;  ///< the part of matmul_backward that makes gradients of weights
  Seconds attention_forward, attention_backward;
  Seconds element_forward;
  Seconds casts;   ///< of both operands of the forward products to low precision
  Seconds tensor;  ///< collectives of one pass over tensor-parallel ranks
  Seconds expert;  ///< all-to-all of one pass
  Seconds context;
  double launches_forward = 0, launches_backward = 0;
  double collectives = 0;
};

/// Depends on tp, cp, ep, the micro-batch and sequence parallelism of a plan and on nothing else of it: a search computes it once for all
/// plans that share them.
struct MicroStepWork {
  std::array<LayerTime, ModelNumbers::kMaxKinds> layers;
  Seconds head;                       ///< projection to the vocabulary and loss, forward and backward
  Seconds head_forward, head_weight;  ///< parts of it
  Seconds embed;
};
[[nodiscard]] MicroStepWork micro_step_work(const ModelNumbers& model, const MachineNumbers& machine,
                                            const TrainingNumbers& training, const Plan& plan);

/// Rows of the embedding on one tensor-parallel rank, padded to a multiple of 128.
[[nodiscard]] double vocab_rows(const ModelNumbers& model, double tp);

}  // namespace trireme::plan
