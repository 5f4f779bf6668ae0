// What a cluster is to the planner: devices by type, links inside and between hosts, what software runs on them.
//
// Every number comes from machines/*.json, where it carries its source or "fitted on ...". At most 8 constants of a device, 3 of a
// cluster and 3 of a software profile are fitted; none belongs to a row or a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::plan {

/// A number and where it is from: a data sheet's address, or "fitted on FILES".
struct Sourced {
  double value = 0;
  std::string source;
  bool fitted = false;
};

struct DeviceDesc {
  std::string name;                           ///< "A100-80"
  std::vector<std::string> other_names;       ///< as other programs and publications write it
  std::map<std::string, Sourced> peak_flops;  ///< dense, FLOP/s: "fp32", "tf32", "fp16", "bf16", "fp8", "fp4"
  Sourced memory_bytes;
  Sourced memory_bandwidth;  ///< B/s
  Sourced processors;        ///< streaming multiprocessors or compute units: tiles that run at once
  Sourced link_bandwidth;    ///< inside a host, per device and direction, B/s
  Sourced nic_bandwidth;  ///< of the vendor's usual host, per device and direction, B/s: where a cluster does not say
  Sourced host_link;      ///< between a device and its host's memory, one direction, B/s; 0 = not known
  /// Devices that see each other over that link (72 in an NVL72 rack); 0 = those of a host.
  int devices_per_domain = 0;
  // Fitted: fractions of the peaks above, and times.
  Sourced matmul_efficiency;
  Sourced matmul_half_depth;  ///< k0, elements: a product of depth k reaches k / (k + k0) of it
  Sourced memory_efficiency;
  Sourced attention_efficiency;      ///< fused attention kernels of the reference generation
  Sourced batched_efficiency;        ///< unfused attention products, of matmul_efficiency
  Sourced low_precision_efficiency;  ///< of the fp8 and fp4 peaks; no value without those
  Sourced link_efficiency;           ///< bus bandwidth of a large all-reduce / link_bandwidth
  Sourced convolution_efficiency;    ///< of matmul_efficiency
  bool measured = false;             ///< false: "datasheet only", nothing fitted on runs of this device
};

/// What names a cluster or a software profile in a table of measurements: how the `source` column begins and, where one publication
/// tells several apart, words of its `note`.
struct Publication {
  std::string source;
  std::string note;       ///< empty: any
  std::string precision;  ///< beginning of the precision; empty: any
  std::string device;     ///< beginning of the device's name; empty: any
};

struct ClusterDesc {
  std::string name;  ///< "selene", or "" for one described on the command line
  std::string source;
  std::vector<Publication> publications;
  int hosts = 1;
  int devices_per_host = 8;
  std::string device;
  Sourced host_network;  ///< all NICs of one host together, one direction, B/s
  // Fitted or calibrated: the three of a cluster.
  Sourced launch_seconds;      ///< host time of one kernel launch
  Sourced link_latency;        ///< of one in-host collective inside a training step, s
  Sourced network_efficiency;  ///< of host_network
  /// Where a host is several groups of devices with slower links between them: devices of a group, and the rate at which all links of
  /// one group to the others carry a collective (takes the place of launch_seconds among the fitted three); 0 = one group.
  int devices_per_group = 0;
  Sourced group_bandwidth;
  double price_per_device_hour = 0;
  bool calibrated = false;
};

/// A generation of training software: what it fuses, hides and launches.
struct SoftwareProfile {
  std::string name;  ///< "megatron-2021", "megatron-core-te", "fsdp2", "trireme", ...
  std::string source;
  std::vector<Publication> publications;
  bool fused_attention = true;
  bool fused_loss = false;
  bool compiled = false;                  ///< torch.compile: fewer launches and passes
  bool graphs = false;                    ///< kernels start from recorded CUDA graphs, not one by one from the host
  bool hides_gradients = false;           ///< gradient reduction runs beside backward
  bool fused_norms = false;               ///< norm, bias, residual and rotary embedding in few kernels
  bool hides_tensor_parallel = false;     ///< tensor-parallel collectives run in pieces beside their products
  bool splits_pipeline_messages = false;  ///< each tensor-parallel rank sends its part only (scatter-gather)
  bool sequence_parallel = false;         ///< the default where tp > 1
  int zero_stage = 0;                     ///< the default where dp > 1
  bool selective_is_attention =
      true;  ///< what "selective" recomputes: the attention core, or most operators but products
  bool full_precision_weights = false;  ///< kept weights are fp32 and have no second master copy
  bool reports_process_memory = false;  ///< memory in its publications is of the whole process, in GB
  double gathered_layers = 2;           ///< ZeRO-3: layers whose whole weights a rank holds at a time
  bool sends_once_per_host = false;     ///< expert parallelism: a token crosses the network once for each host
  bool fused_experts = false;           ///< low precision: activation and casts inside the grouped products of experts
  bool hides_expert_network = false;   ///< its all-to-all runs beside other micro-steps where it leaves the link domain
  bool hides_expert_parallel = false;  ///< its all-to-all runs beside other micro-steps
  double gradient_bytes = 4;           ///< of one reduced gradient element
  // Fitted: the three of a profile.
  Sourced attention_generation;  ///< factor on attention_efficiency
  Sourced overlap;               ///< share of hideable communication that is hidden
  Sourced framework_rate;        ///< factor on the rate of everything
  Sourced
      gather_share;  ///< ZeRO-3 only, in place of attention_generation: of the network's rate that its gathers reach
  Sourced context_bytes;  ///< memory of a process beyond its tensors: context, libraries' buffers, unused cache
  bool calibrated = false;
};

}  // namespace trireme::plan
