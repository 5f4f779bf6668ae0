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

/// On a cluster of unlike hosts: the replicas that stand on hosts of one kind. Each runs `micro_steps` in a step, but for `shorter` of them, which
/// run one less.
struct ReplicaShare {
  int group = 0;  ///< of the cluster's kinds of hosts, in the order of its file
  int64_t count = 1;
  int64_t micro_steps = 1;
  int64_t shorter = 0;

  bool operator==(const ReplicaShare&) const = default;
};

/// One way to do it. dp * tp * pp * cp = devices; ep lies inside dp * cp * tp.
struct Plan {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  int64_t micro_batch = 1;     ///< samples of one replica in one forward
  int64_t virtual_stages = 1;  ///< model chunks of one pipeline rank
  /// "1f1b" (with virtual stages: interleaved), "interleaved", "zb1p", "zb2p", "zbv" (two chunks of a rank in the shape of a V)
  std::string schedule = "1f1b";
  std::vector<int> stage_layers =
      {};  ///< layers of each pipeline rank, first to last; empty: even (docs/planner_costs.md, 3.9)
  Recompute recompute = Recompute::kNone;
  double recompute_share = 1;  ///< of the layers to which `recompute` applies (Megatron's recompute-num-layers)
  int zero_stage = 0;          ///< 0 none, 1 optimizer, 2 + gradients, 3 + weights
  int64_t shard_ranks = 0;     ///< stage 3: ranks that share one copy (hybrid shard); 0 = all of dp
  bool sequence_parallel = false;
  bool offload_activations = false;  ///< to the host's memory between forward and backward
  bool offload_optimizer = false;    ///< optimizer state in the host's memory, its step on the host's processors
  int64_t bucket_bytes =
      0;  ///< of gradients that are reduced together; 0: whatever the software profile was measured with
  double compression = 1;  ///< bytes of a gradient that are sent / bytes without compression
  // A cluster of unlike hosts: one of the two.
  std::vector<int> stage_group = {};        ///< kind of hosts on which each pipeline rank of every replica stands
  std::vector<ReplicaShare> replicas = {};  ///< whole replicas on each kind; their counts sum to dp
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
         rounding = 0, context = 0;  ///< bytes
  std::vector<Term> terms;
  [[nodiscard]] double total() const {
    return parameters + gradients + optimizer + activations + communication + temporaries + rounding + context;
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
