// How a model is trained on a cluster: what the user fixes (Training) and what may be searched (Plan).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/plan/machine_desc.h"
#include "trireme/plan/model_desc.h"

namespace trireme::plan {

enum class Recompute { kNone, kSelective, kSelectiveOperators, kSelectiveLayers, kFull };

/// What the user wants trained.
struct Training {
  int64_t global_batch = 0;        ///< samples of one optimizer step, over all replicas
  int64_t sequence = 0;            ///< tokens of a sample
  std::string precision = "bf16";  ///< of products: fp32, tf32, fp16, bf16, fp8, fp4
  double gradient_bytes = 4;       ///< of an accumulated gradient element
  double gather_bytes = 2;         ///< of a weight that ZeRO-3 gathers
  double weight_bytes = 0;        ///< of a weight that is kept; 0 = as wide as the precision (2, or 4 in fp32 and tf32)
  double accumulation_bytes = 0;  ///< of a second gradient buffer that no stage of ZeRO splits
  double optimizer_bytes = 12;    ///< of state per parameter: fp32 master and two moments of Adam
  bool frozen_base = false;       ///< low-rank adapters: no weight gradients of the model itself
};

/// One way to do it. dp * tp * pp * cp = devices; ep lies inside dp * cp * tp.
struct Plan {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  int64_t micro_batch = 1;     ///< samples of one replica in one forward
  int64_t virtual_stages = 1;  ///< model chunks of one pipeline rank
  std::string schedule = "1f1b";
  Recompute recompute = Recompute::kNone;
  double recompute_share = 1;  ///< of the layers to which `recompute` applies (Megatron's recompute-num-layers)
  int zero_stage = 0;          ///< 0 none, 1 optimizer, 2 + gradients, 3 + weights
  int64_t shard_ranks = 0;     ///< stage 3: ranks that share one copy (hybrid shard); 0 = all of dp
  bool sequence_parallel = false;
  bool offload_activations = false;  ///< to the host's memory between forward and backward
};

/// One term of a prediction: what `--explain` prints.
struct Term {
  std::string name;     ///< "attention", "dp gradients", ...
  double value = 0;     ///< seconds of the step, or bytes
  std::string formula;  ///< with the numbers put in
};

struct StageMemory {
  int stage_rank = 0;  ///< pipeline rank
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0, communication = 0, temporaries = 0,
         context = 0;  ///< bytes
  std::vector<Term> terms;
  [[nodiscard]] double total() const {
    return parameters + gradients + optimizer + activations + communication + temporaries + context;
  }
};

struct Estimate {
  double step_seconds = 0;
  double low_seconds = 0, high_seconds = 0;  ///< where about two thirds of runs should lie
  double tokens_per_second = 0;              ///< of the whole job (samples, where a sample has no tokens)
  double mfu = 0;          ///< model FLOPs (no recomputation, attention counted in full) / dense peak of the precision
  std::vector<Term> time;  ///< sums to step_seconds
  std::vector<StageMemory> memory;  ///< by pipeline rank
  double peak_bytes = 0;            ///< of the fullest rank
  int peak_rank = 0;
  std::vector<std::string> unmodelled;  ///< known sources of error
};

struct Machine {
  ClusterDesc cluster;
  DeviceDesc device;
  SoftwareProfile software;
};

/// Time and memory of one plan; the reason where it cannot be told (a part that is not modelled, degrees that do not fit the model).
/// That a plan needs more memory than there is makes no Reason: compare peak_bytes.
[[nodiscard]] Result<Estimate> estimate(const ModelDesc& model, const Machine& machine, const Training& training,
                                        const Plan& plan);

}  // namespace trireme::plan
