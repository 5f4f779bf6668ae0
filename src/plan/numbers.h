// What the time and memory models compute with: plain numbers, taken once from the descriptions of model, machine and training.
//
// Reading a plan's cost is then arithmetic without strings or allocations: a search asks for it 100,000 times a second.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/units.h"
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
  // Device, with efficiencies multiplied in.
  FlopsPerSecond linear;  ///< large products of linear layers in the training precision
  FlopsPerSecond plain;   ///< the same in 16 bit (or the training precision, where that is wider)
  double half_depth = 0, processors = 1;
  BytesPerSecond memory;
  FlopsPerSecond convolution;  ///< convolutions
  FlopsPerSecond attention;    ///< fused attention, causal FLOPs counted as half
  FlopsPerSecond batched;      ///< products of unfused attention
  Bytes element{2};            ///< of an activation
  BytesPerSecond link;
  Seconds link_latency;
  BytesPerSecond host_link;
  BytesPerSecond group_link;  ///< between the groups of a host
  Bytes memory_bytes;
  int domain = 8, per_host = 8, group = 0;
  BytesPerSecond network;     ///< of a host
  Seconds launch;             ///< of a kernel that the program launches
  double launched_share = 1;  ///< of the kernels of an eager program
  // Software.
  bool fused_attention = true, fused_loss = false, compiled = false, fused_norms = false, hides_gradients = false,
       hides_tp = false, splits_messages = false, selective_is_attention = true, sends_once_per_host = false,
       hides_experts = false, hides_expert_network = false, fused_experts = false;
  double overlap = 0, gather_share = 1;
  double gathered_layers = 2;
  Bytes context;        ///< of a process beyond its tensors
  FlopsPerSecond peak;  ///< dense data-sheet peak of the training precision, for MFU
  /// Where replicas stand on unlike hosts: the network over which all of them reduce gradients; null = this one.
  const MachineNumbers* replicas = nullptr;
};

struct TrainingNumbers {
  double global_batch = 0, sequence = 0;
  Bytes gradient_bytes{4}, gather_bytes{2}, optimizer_bytes{12}, weight_bytes{2};  ///< of one parameter
  Bytes accumulation_bytes;
  bool frozen_base = false, low_precision = false;
};

/// One step by cause. What is hidden behind something else is not in it.
struct TimeParts {
  Seconds matmul, attention, elementwise, recompute, tensor_parallel, expert_parallel, context_parallel, launch;
  Seconds head, bubble, pipeline, gradients, gather, optimizer, fixed;
  [[nodiscard]] Seconds total() const {
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

/// One rank of a pipeline stage at its peak.
struct MemoryParts {
  Bytes weights, gradients, optimizer;
  Bytes activations;  ///< kept for backward, of all micro-steps in flight
  Bytes temporaries;  ///< what stands on top at the worst moment: of the head or of the widest layer
  Bytes gathered;     ///< ZeRO-3: whole weights and gradients of the layers at work
  Bytes rounding;     ///< what the allocator hands out beyond what was asked for
  Bytes context;
  [[nodiscard]] Bytes tensors() const { return weights + gradients + optimizer + activations + temporaries + gathered; }
  [[nodiscard]] Bytes total() const { return tensors() + rounding + context; }
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
/// What one layer keeps for backward in one micro-step, before recomputation.
[[nodiscard]] Bytes layer_activation_bytes(const LayerNumbers& layer, const ModelNumbers& model,
                                           const MachineNumbers& machine, const TrainingNumbers& training,
                                           const Plan& plan);
/// Of the fullest pipeline rank.
[[nodiscard]] PeakMemory peak_memory(const ModelNumbers& model, const MachineNumbers& machine,
                                     const TrainingNumbers& training, const Plan& plan);

[[nodiscard]] TimeParts operator_step_time(const ModelNumbers& model, const MachineNumbers& machine,
                                           const TrainingNumbers& training, const Plan& plan);
[[nodiscard]] MemoryParts operator_memory(const ModelNumbers& model, const MachineNumbers& machine,
                                          const TrainingNumbers& training, const Plan& plan);

/// Where runs were published that took 10 to 25 % longer, because the allocator gives memory back and asks for it anew.
[[nodiscard]] inline bool near_memory_limit(Bytes bytes, Bytes memory_bytes) { return bytes > 0.92 * memory_bytes; }
inline constexpr const char* kNearMemoryLimit =
    "near the memory limit the allocator retries: 10 to 25 % slower runs were published";

/// What step_time() sums up over a pipeline, for its simulation.
struct StageSeconds {
  Seconds forward, input, weight, recompute;
  [[nodiscard]] Seconds total() const { return forward + input + weight + recompute; }
};
struct PipelineDetail {
  std::vector<StageSeconds> stages;  ///< by rank: all passes of one micro-step, embedding and head where they stand
  int slowest_rank = 0;
  Bytes message_bytes;  ///< of one boundary, one way
  Seconds message_latency;
  BytesPerSecond message_rate;
};

/// `detail`, where it is given, is filled as well.
[[nodiscard]] TimeParts step_time(const ModelNumbers& model, const MachineNumbers& machine,
                                  const TrainingNumbers& training, const Plan& plan, PipelineDetail* detail = nullptr);

/// Where the number of layers is no multiple of the ranks, embedding and head take a place each.
[[nodiscard]] StageRange stage_layers(int layers, int ranks, int rank);
/// The plan's own split, where it has one.
[[nodiscard]] StageRange stage_layers(const ModelNumbers& model, const Plan& plan, int rank);

/// A product of m x k by k x n, at `rate` for large ones.
[[nodiscard]] Seconds matmul_seconds(const MachineNumbers& machine, FlopsPerSecond rate, double m, double n, double k);

/// An all-reduce of `bytes` over `ranks` devices, `near` of them in each host (or link domain), while `beside` such groups of one
/// host share its network.
[[nodiscard]] Seconds allreduce_seconds(const MachineNumbers& machine, Bytes bytes, double ranks, double near,
                                        double beside);
/// Half of it: reduce-scatter or all-gather of `bytes` in all.
[[nodiscard]] Seconds gather_seconds(const MachineNumbers& machine, Bytes bytes, double ranks, double near,
                                     double beside);

[[nodiscard]] ModelNumbers numbers_of(const ModelDesc& model);
[[nodiscard]] MachineNumbers numbers_of(const Machine& machine, const Training& training);
[[nodiscard]] MachineNumbers numbers_of(const DeviceDesc& device, const ClusterDesc& cluster,
                                        const SoftwareProfile& software, const Training& training,
                                        int devices_per_host);
[[nodiscard]] TrainingNumbers numbers_of(const Training& training);

}  // namespace trireme::plan
