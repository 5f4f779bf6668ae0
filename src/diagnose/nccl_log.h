// The lines that NCCL writes with NCCL_DEBUG=INFO (2.8 to 2.30), whatever a launcher put in front of them, and what they tell of versions and
// networks. What they tell of failures is found elsewhere, from the same lines.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "diagnose/reader.h"

namespace trireme::diagnose {

/// One line, taken apart. "[1,3]<stdout>:node-01:29881:30401 [0] init.cc:497 NCCL WARN Duplicate GPU ..."
struct NcclLine {
  std::string_view host;           ///< "node-01"; empty in a line such as "NCCL version 2.19.3+cuda12.3"
  int64_t pid = 0;                 ///< 29881
  int64_t tid = 0;                 ///< 30401
  std::optional<int> device;       ///< 0: the number in brackets is the process's CUDA device, not a rank
  std::optional<int> prefix_rank;  ///< 3: what mpirun, srun -l, torchrun or trireme run put in front
  std::string_view level;          ///< "INFO", "WARN", "CALL", "TRACE", ...; "version" for the line of the version
  std::string_view source;         ///< "init.cc:497"; empty when not told
  std::string_view text;           ///< "Duplicate GPU ...", what comes after the level
};

/// nullopt: not a line of NCCL. The views point into `line`.
[[nodiscard]] std::optional<NcclLine> parse_nccl_line(std::string_view line);

/// The rank that a launcher put in front: "[1,3]<stdout>:", "[rank3]:", "3: ", "[default3]:"; nullopt when none did.
[[nodiscard]] std::optional<int> rank_in_front(std::string_view line);

/// "[0]mlx5_2:1/IB/SHARP [1]mlx5_0:1/RoCE [RO]; OOB ib0:192.0.2.1<0>" taken apart.
struct NcclDevices {
  std::vector<std::string_view> devices;  ///< "mlx5_2:1", "mlx5_0:1"; "eth0" of sockets
  bool infiniband = false;                ///< one of them is "/IB"
  bool roce = false;                      ///< one of them is "/RoCE"
  std::string_view oob;                   ///< "ib0"; empty when not told
};
[[nodiscard]] NcclDevices parse_nccl_devices(std::string_view text);

/// Facts (versions, network of each process) and findings about the network: sockets in place of InfiniBand, hosts that disagree, interfaces that
/// others cannot reach, bonds among the adapters, a communicator of one rank, unlike versions.
[[nodiscard]] std::unique_ptr<LineReader> make_nccl_network_reader();

}  // namespace trireme::diagnose
