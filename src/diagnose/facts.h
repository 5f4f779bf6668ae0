// What files or probes tell about machines, ranks and memory, apart from any fault. nullopt: not told; in JSON null.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::diagnose {

/// GPUs and network cards of one host and what lies between them.
struct Topology {
  std::optional<int> gpus{};
  std::optional<int> nics{};                          ///< nullopt: the table does not show cards
  std::vector<std::string> gpu_names{};               ///< "GPU0"
  std::vector<std::string> nic_names{};               ///< "NIC0", or "mlx5_0" where the table says so
  std::vector<std::string> nic_devices{};             ///< "mlx5_0" for each of nic_names; empty text: not told
  std::vector<std::vector<std::string>> links{};      ///< gpus x gpus, as printed: "NV12", "SYS", "X"; "" where cut off
  std::vector<std::vector<std::string>> nic_links{};  ///< gpus x nics
  std::vector<std::optional<int>> numa{};             ///< of each GPU
  std::vector<std::string> cpus{};                    ///< of each GPU: "0-51,104-155"; empty: not told
  std::vector<std::vector<std::string>>
      nearest_nic{};                            ///< of each GPU the best linked cards; none when all are across sockets
  std::vector<std::string> nearest_nic_link{};  ///< "PXB"; empty when none is near
  std::string shows{};                          ///< "links", or "p2p" for a matrix of OK, NS, ...
  std::optional<bool> nvlink{};                 ///< nullopt: the table does not show NVLink (topo -mp, topo -p2p)
  std::string host{};
  std::string file{};
};

/// One port of an InfiniBand or RoCE adapter.
struct Port {
  std::string device{};  ///< "mlx5_0"
  int port = 1;
  std::optional<std::string> state{};       ///< "Active", "Down", "Initializing", "Armed"
  std::optional<std::string> link_layer{};  ///< "InfiniBand", "Ethernet" (RoCE)
  std::optional<double> rate_gbps{};        ///< as printed, leftovers of dead ports too
  std::optional<bool> usable{};
  std::optional<std::string> type{};  ///< "MT4129"
  std::string host{};
};

struct Versions {
  std::optional<std::string> nccl{};    ///< "2.23.4+cuda12.4"
  std::optional<std::string> cuda{};    ///< "12.4": what the driver supports at most, or what NCCL was built with
  std::optional<std::string> driver{};  ///< "550.54.15"
  std::optional<std::string> torch{};   ///< "2.13.0+cu126": the LibTorch that trireme-train loads
};

/// What one rank (or one process whose rank is not told) talks over.
struct Network {
  std::optional<std::string> host{};
  std::optional<int> rank{};
  std::optional<std::string> transport{};  ///< "IB", "RoCE", "IB+RoCE", "Socket", "FastSocket", "IBext_v8", ...
  std::optional<std::string> plugin{};     ///< "IBext_v8": what NCCL's last word names beside the transport
  std::vector<std::string> devices{};      ///< "mlx5_0:1" or "eth0", in the order of the log
};

/// One out-of-memory message.
struct MemoryAsk {
  std::string file{};
  int64_t line = 0;
  std::optional<int64_t> ask_bytes{};
  std::optional<int64_t> capacity_bytes{};
  std::optional<int64_t> allocated_bytes{};
  std::optional<int64_t> reserved_unallocated_bytes{};
};

/// A way between two ranks, or GPUs, as it was measured.
struct LinkMeasure {
  std::string kind{};  ///< "memcpy" (one rank in its own memory), "shared memory", "TCP", "GPU copy", "GPU all-reduce"
  int from = 0;        ///< rank, or number of the GPU
  int to = 0;
  std::optional<double> median_latency_us{};  ///< half of a round trip of 8 bytes
  std::optional<double> gb_per_s{};           ///< 1e9 bytes a second, one way; median
  int64_t wrong = 0;                          ///< bytes that arrived changed
  std::optional<bool> peer{};                 ///< of GPUs: whether they reach each other's memory directly
};

struct Facts {
  std::optional<Topology> topology{};  ///< the first one; further hosts' are in more_topologies
  std::vector<Topology> more_topologies{};
  std::vector<Port> ports{};
  Versions versions{};
  std::vector<Network> network{};
  std::vector<MemoryAsk> memory{};
  std::vector<LinkMeasure> links{};

  void add_topology(Topology topology) {
    if (!topology_room()) return;
    topology_slot() = std::move(topology);
  }

 private:
  static constexpr size_t kMostTopologies = 4096;
  [[nodiscard]] bool topology_room() const { return more_topologies.size() < kMostTopologies; }
  Topology& topology_slot() { return topology ? more_topologies.emplace_back() : topology.emplace(); }
};

}  // namespace trireme::diagnose
