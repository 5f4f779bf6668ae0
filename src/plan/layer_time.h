// What one micro-step costs on one device, layer by layer, before anything is said of stages, schedules and replicas.
#pragma once

#include <array>

#include "plan/numbers.h"

namespace trireme::plan {

inline constexpr double kNetworkLatency = 4e-5;   ///< seconds, of one hop between hosts
inline constexpr double kCompiledLaunches = 0.5;  ///< share of launches that torch.compile leaves

/// The longer of two that hide each other, smooth where they are alike: (a^6 + b^6)^(1/6).
[[nodiscard]] double soft_max(double a, double b);

/// The forward of one layer on one rank, by cause; backward where it is no multiple of it. Seconds.
struct LayerTime {
  double matmul_forward = 0, matmul_backward = 0;
  double matmul_weight = 0;  ///< the part of matmul_backward that makes gradients of weights
  double attention_forward = 0, attention_backward = 0;
  double element_forward = 0;
  double casts = 0;   ///< of both operands of the forward products to low precision
  double tensor = 0;  ///< collectives of one pass over tensor-parallel ranks
  double expert = 0;  ///< all-to-all of one pass
  double context = 0;
  double launches_forward = 0, launches_backward = 0;
  double collectives = 0;
};

/// Depends on tp, cp, ep, the micro-batch and sequence parallelism of a plan and on nothing else of it: a search computes it once for all
/// plans that share them.
struct MicroStepWork {
  std::array<LayerTime, ModelNumbers::kMaxKinds> layers;
  double head = 0;                           ///< projection to the vocabulary and loss, forward and backward
  double head_forward = 0, head_weight = 0;  ///< parts of it
  double embed = 0;
};
[[nodiscard]] MicroStepWork micro_step_work(const ModelNumbers& model, const MachineNumbers& machine,
                                            const TrainingNumbers& training, const Plan& plan);

/// Rows of the embedding on one tensor-parallel rank, padded to a multiple of 128.
[[nodiscard]] double vocab_rows(const ModelNumbers& model, double tp);

}  // namespace trireme::plan
