// What the time and memory models compute with: plain numbers, taken once from the descriptions of model, machine and training.
//
// Reading a plan's cost is then arithmetic without strings or allocations: a search asks for it 100,000 times a second.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/plan/plan.h"

namespace trireme::plan {

/// The distinct layers of a transformer, as matrix products see them. Counts of elements and of weights, before any split.
struct LayerNumbers {
  double q_width = 0;      ///< heads x dimension of queries
  double kv_width = 0;     ///< kv heads x (key + value dimension)
  double out_width = 0;    ///< heads x value dimension
  double score_width = 0;  ///< heads x (key + value dimension): FLOPs of scores and sums per pair of tokens / 2
  double heads = 0, kv_heads = 0, head_dim = 0;
  double q_rank = 0, kv_rank = 0, rope_dim = 0;  ///< latent attention
  double key_dim = 0, value_dim = 0;
  double window = 0;
  bool causal = true;
  double ffn = 0;    ///< dense feed-forward width
  double gates = 2;  ///< products of the input: 3 with a gate, counting the one back
  double experts = 0, active = 0, expert_width = 0, shared_width = 0, expert_gates = 3;
  double split = 0, replicated = 0, expert_weights = 0;  ///< parameters (LayerParameters)
  bool cross = false;                                    ///< a second, unmasked attention block

  bool operator==(const LayerNumbers&) const = default;
};

struct ModelNumbers {
  static constexpr int kMaxKinds = 8;
  std::array<LayerNumbers, kMaxKinds> kinds;
  int num_kinds = 0;
  std::vector<uint8_t> kind_of;                               ///< of each layer, first to last
  std::vector<std::array<int32_t, kMaxKinds>> layers_before;  ///< [layer]: how many of each kind stand before it
  double hidden = 0, vocab = 0, positions = 0, layers = 0;
  std::vector<Operator> operators;  ///< of a network that is no transformer
  bool tied = false, head = true;
  double first_parameters = 0, last_parameters = 0;
};

struct MachineNumbers {
  // Device, with efficiencies multiplied in. FLOP/s, B/s, s.
  double linear = 0;  ///< large products of linear layers in the training precision
  double plain = 0;   ///< the same in 16 bit (or the training precision, where that is wider)
  double half_depth = 0, processors = 1;
  double memory = 0;
  double convolution = 0;  ///< convolutions
  double attention = 0;    ///< fused attention, causal FLOPs counted as half
  double batched = 0;      ///< products of unfused attention
  double element = 2;      ///< bytes of an activation
  double link = 0, link_latency = 0;
  double host_link = 0;
  double group_link = 0;  ///< between the groups of a host
  double memory_bytes = 0;
  int domain = 8, per_host = 8, group = 0;
  double network = 0;  ///< of a host, B/s
  double launch = 0;
  // Software.
  bool fused_attention = true, fused_loss = false, compiled = false, fused_norms = false, hides_gradients = false,
       hides_tp = false, splits_messages = false, selective_is_attention = true, sends_once_per_host = false,
       hides_experts = false;
  double overlap = 0, gather_share = 1;
  double gathered_layers = 2;
  double context = 0;  ///< bytes of a process beyond its tensors
  double peak = 0;     ///< dense data-sheet peak of the training precision, for MFU
  /// Where replicas stand on unlike hosts: the network over which all of them reduce gradients; null = this one.
  const MachineNumbers* replicas = nullptr;
};

struct TrainingNumbers {
  double global_batch = 0, sequence = 0;
  double gradient_bytes = 4, gather_bytes = 2, optimizer_bytes = 12, weight_bytes = 2;
  double accumulation_bytes = 0;
  bool frozen_base = false, low_precision = false;
};

/// The seconds of one step by cause. What is hidden behind something else is not in it.
struct TimeParts {
  double matmul = 0, attention = 0, elementwise = 0, recompute = 0, tensor_parallel = 0, expert_parallel = 0,
         context_parallel = 0, launch = 0;
  double head = 0, bubble = 0, pipeline = 0, gradients = 0, gather = 0, optimizer = 0, fixed = 0;
  [[nodiscard]] double total() const {
    return matmul + attention + elementwise + recompute + tensor_parallel + expert_parallel + context_parallel +
           launch + head + bubble + pipeline + gradients + gather + optimizer + fixed;
  }
};

/// Why a plan cannot be run, whatever the time and the memory.
enum class PlanFault {
  kNone,
  kDegree,        ///< a degree, micro-batch or number of virtual stages below 1
  kBatch,         ///< global batch no multiple of micro-batch x dp
  kHeads,         ///< heads no multiple of tp
  kWidth,         ///< feed-forward width no multiple of tp
  kLayers,        ///< fewer layers than pp x virtual stages
  kInterleaving,  ///< virtual stages without a pipeline, or micro-steps no multiple of pp
  kSequence,      ///< sequence no multiple of cp (or of tp with sequence parallelism)
  kExperts,       ///< ep without experts, experts no multiple of ep, or ep no divisor of dp x cp x tp
  kShards,        ///< dp x cp no multiple of shard_ranks
  kOperators,     ///< more than data parallelism of a network by operators
  kPosition,      ///< sequence longer than the table of positions
  kSchedule,      ///< a zero-bubble schedule without what it needs
  kStages,        ///< stage_layers is no split of the layers over the pipeline
  kOffload,       ///< optimizer state to a host whose link is not known
};
[[nodiscard]] PlanFault check_plan(const ModelNumbers& model, const TrainingNumbers& training, const Plan& plan);
/// What is wrong and what is required, with the numbers.
[[nodiscard]] std::string text_of(PlanFault fault, const ModelNumbers& model, const TrainingNumbers& training,
                                  const Plan& plan);

/// The bytes of one rank of a pipeline stage at its peak.
struct MemoryParts {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;  ///< kept for backward, of all micro-steps in flight
  double temporaries = 0;  ///< what stands on top at the worst moment: of the head or of the widest layer
  double gathered = 0;     ///< ZeRO-3: whole weights and gradients of the layers at work
  double context = 0;
  [[nodiscard]] double tensors() const {
    return weights + gradients + optimizer + activations + temporaries + gathered;
  }
  [[nodiscard]] double total() const { return tensors() + context; }
};
struct PeakMemory {
  MemoryParts parts;
  int rank = 0;
};

/// Layers [first, last) of one pipeline rank.
struct StageRange {
  int first = 0, last = 0;
};
[[nodiscard]] MemoryParts stage_memory(const ModelNumbers& model, const MachineNumbers& machine,
                                       const TrainingNumbers& training, const Plan& plan, int rank);
/// The same with these layers, whatever the plan says.
[[nodiscard]] MemoryParts stage_memory(const ModelNumbers& model, const MachineNumbers& machine,
                                       const TrainingNumbers& training, const Plan& plan, int rank, StageRange range);
/// Bytes that one layer keeps for backward in one micro-step, before recomputation.
[[nodiscard]] double layer_activation_bytes(const LayerNumbers& layer, const ModelNumbers& model,
                                            const MachineNumbers& machine, const TrainingNumbers& training,
                                            const Plan& plan);
/// Of the fullest pipeline rank.
[[nodiscard]] PeakMemory peak_memory(const ModelNumbers& model, const MachineNumbers& machine,
                                     const TrainingNumbers& training, const Plan& plan);

[[nodiscard]] TimeParts operator_step_time(const ModelNumbers& model, const MachineNumbers& machine,
                                           const TrainingNumbers& training, const Plan& plan);
[[nodiscard]] MemoryParts operator_memory(const ModelNumbers& model, const MachineNumbers& machine,
                                          const TrainingNumbers& training, const Plan& plan);

/// What step_time() sums up over a pipeline, for its simulation.
struct StageSeconds {
  double forward = 0, input = 0, weight = 0, recompute = 0;
  [[nodiscard]] double total() const { return forward + input + weight + recompute; }
};
struct PipelineDetail {
  std::vector<StageSeconds> stages;  ///< by rank: all passes of one micro-step, embedding and head where they stand
  int slowest_rank = 0;
  double message_bytes = 0;  ///< of one boundary, one way
  double message_latency = 0, message_rate = 0;
};

/// `detail`, where it is given, is filled as well.
[[nodiscard]] TimeParts step_time(const ModelNumbers& model, const MachineNumbers& machine,
                                  const TrainingNumbers& training, const Plan& plan, PipelineDetail* detail = nullptr);

/// Where the number of layers is no multiple of the ranks, embedding and head take a place each.
[[nodiscard]] StageRange stage_layers(int layers, int ranks, int rank);
/// The plan's own split, where it has one.
[[nodiscard]] StageRange stage_layers(const ModelNumbers& model, const Plan& plan, int rank);

/// Seconds of a product of m x k by k x n at `rate` FLOP/s for large ones.
[[nodiscard]] double matmul_seconds(const MachineNumbers& machine, double rate, double m, double n, double k);

/// Seconds of an all-reduce of `bytes` over `ranks` devices, `near` of them in each host (or link domain), while `beside` such groups of one
/// host share its network.
[[nodiscard]] double allreduce_seconds(const MachineNumbers& machine, double bytes, double ranks, double near,
                                       double beside);
/// Half of it: reduce-scatter or all-gather of `bytes` in all.
[[nodiscard]] double gather_seconds(const MachineNumbers& machine, double bytes, double ranks, double near,
                                    double beside);

[[nodiscard]] ModelNumbers numbers_of(const ModelDesc& model);
[[nodiscard]] MachineNumbers numbers_of(const Machine& machine, const Training& training);
[[nodiscard]] MachineNumbers numbers_of(const DeviceDesc& device, const ClusterDesc& cluster,
                                        const SoftwareProfile& software, const Training& training,
                                        int devices_per_host);
[[nodiscard]] TrainingNumbers numbers_of(const Training& training);

}  // namespace trireme::plan
