// How long a collective takes on a cluster of any size, by topology: closed forms, so that 100,000 ranks cost what two cost.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::plan {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll };

enum class Topology {
  kRing,     ///< rings over all ranks, as many as there are NICs in a domain; each leaves a domain once
  kTree,     ///< double binary tree over the domains, a chain inside
  kDomains,  ///< inside a domain over its fast links, between domains shard by shard over a shared spine; both at once
  kRails,  ///< the same on a rail-optimised network: NIC i of every domain on one switch, so no shard meets another one
};

/// "ring", "tree", "domains", "rails"; throws kInvalidArgument with the nearest name.
[[nodiscard]] Topology topology_from(std::string_view name);

/// The network as one rank sees it. Rates in B/s in one direction.
struct Fabric {
  int64_t domain_ranks = 8;       ///< ranks that see each other over the fast links (NVLink: a host, or a rack of 72)
  double link_bytes_per_s = 0;    ///< of one rank inside its domain
  double link_latency_s = 25e-6;  ///< of one collective inside a domain; grows by half for every doubling of its ranks
  double memory_bytes_per_s = 0;  ///< of one rank's memory; 0 = not counted
  double memory_passes = 0;       ///< times that a collective moves its buffer through that memory beside the links
  double nic_bytes_per_s = 0;     ///< of one rank's share of its domain's NICs
  double nic_latency_s = 5e-6;    ///< of one hop between domains
  double spine_share = 1;         ///< of the NICs' rate that an oversubscribed spine carries (kDomains, all-to-all)
};

/// Seconds of one collective over `ranks` ranks, `bytes` on each rank: the whole buffer (its result for an all-gather, its input for a
/// reduce-scatter, all that a rank sends in an all-to-all). Domains are full but for the last. One rank: 0.
///
/// Ring and tree: volumes of docs/bandwidth.md; 2 (n-1)/n S for an all-reduce in rings, 2 S in trees. A rank of a domain with a NIC of its
/// own carries 1 / domain_ranks of what leaves the domain. Errors: kInvalidArgument for a rate of 0 that is needed, or negative numbers.
[[nodiscard]] double collective_seconds(Collective collective, Topology topology, int64_t ranks, double bytes,
                                        const Fabric& fabric);

}  // namespace trireme::plan
