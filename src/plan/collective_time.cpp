// Volumes over rates plus latencies. What a domain does inside and what it sends outside run at once, chunk by chunk: the slower one counts.
#include "trireme/plan/collective_time.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

/// Times that a rank's links carry the buffer, over n ranks in rings.
double ring_volume(Collective collective, int64_t n) {
  const double others = static_cast<double>(n - 1) / static_cast<double>(n);
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * others;
    case Collective::kBroadcast:
      return n > 1 ? 1 : 0;
    default:
      return others;
  }
}

/// The same in trees: a rank is inside one tree and a leaf of the other one.
double tree_volume(Collective collective, int64_t n) {
  if (n < 2) return 0;
  return collective == Collective::kAllReduce ? 2 : 1;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::kInvalidArgument, str("[plan.collective_seconds] ", what));
}

double log2_of(int64_t n) { return n > 1 ? std::log2(static_cast<double>(n)) : 0; }

/// Steps of a ring that follow each other: an all-reduce goes round twice.
double ring_steps(Collective collective, int64_t n) {
  return static_cast<double>(n - 1) * (collective == Collective::kAllReduce ? 2 : 1);
}

void check(int64_t ranks, double bytes, const Fabric& fabric) {
  if (ranks < 1) refuse(str("ranks is ", ranks, "; at least 1 is required."));
  if (fabric.domain_ranks < 1) refuse(str("domain_ranks is ", fabric.domain_ranks, "; at least 1 is required."));
  for (const double value : {bytes, fabric.link_bytes_per_s, fabric.link_latency_s, fabric.memory_bytes_per_s,
                             fabric.memory_passes, fabric.nic_bytes_per_s, fabric.nic_latency_s}) {
    if (!(value >= 0)) refuse(str("a size, rate or latency is ", value, "; at least 0 is required."));
  }
  if (!(fabric.spine_share > 0 && fabric.spine_share <= 1)) {
    refuse(str("spine_share is ", fabric.spine_share, "; more than 0 and at most 1 is required."));
  }
  const bool inside = ranks > 1 && fabric.domain_ranks > 1;
  if (inside && fabric.link_bytes_per_s <= 0) refuse("link_bytes_per_s is 0; the rate inside a domain is required.");
  if (ranks > fabric.domain_ranks && fabric.nic_bytes_per_s <= 0) {
    refuse("nic_bytes_per_s is 0; the rate between domains is required.");
  }
}

}  // namespace

Topology topology_from(std::string_view name) {
  const std::vector<std::string> names = {"ring", "tree", "domains", "rails"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<Topology>(i);
  }
  throw Error(ErrorKind::kInvalidArgument,
              str("[plan.topology] unknown topology '", name, "'", did_you_mean(name, names),
                  "; one of these is required: ", join(names), "."));
}

double collective_seconds(Collective collective, Topology topology, int64_t ranks, double bytes, const Fabric& fabric) {
  check(ranks, bytes, fabric);
  if (ranks == 1) return 0;
  const int64_t g = std::min(ranks, fabric.domain_ranks);
  const int64_t domains = (ranks + g - 1) / g;
  const double inside_latency = g > 1 ? fabric.link_latency_s * (1 + log2_of(g) / 2) : 0;
  const double passes = fabric.memory_bytes_per_s > 0 ? fabric.memory_passes * bytes / fabric.memory_bytes_per_s : 0;
  const double link = g > 1 ? fabric.link_bytes_per_s : HUGE_VAL;  // not used
  const auto domain_ranks = static_cast<double>(g);

  // All-to-all: each rank sends 1 / n to every other one, whatever the topology; only a spine makes a difference.
  if (collective == Collective::kAllToAll) {
    const auto n = static_cast<double>(ranks);
    const double inside = bytes * (domain_ranks - 1) / n / link;
    if (domains == 1) return inside_latency + passes + inside;
    const double share = topology == Topology::kRails ? 1 : fabric.spine_share;
    const double outside = bytes * (n - domain_ranks) / n / (fabric.nic_bytes_per_s * share);
    // On rails a message first moves inside its domain to the rank of the right rail.
    const double forwarded = topology == Topology::kRails ? bytes * (n - domain_ranks) / n / link : 0;
    return inside_latency + passes + fabric.nic_latency_s * log2_of(domains) + std::max(inside + forwarded, outside);
  }

  if (domains == 1) return inside_latency + passes + ring_volume(collective, g) * bytes / link;

  // The buffer leaves a domain over all of its NICs together: each rank's NIC carries 1 / g of it.
  const double nic = fabric.nic_bytes_per_s;
  switch (topology) {
    case Topology::kRing:
      return inside_latency + passes + fabric.nic_latency_s * ring_steps(collective, domains) +
             ring_volume(collective, ranks) * bytes * std::max(1 / link, 1 / (nic * domain_ranks));
    case Topology::kTree:
      return inside_latency + passes + 2 * fabric.nic_latency_s * log2_of(domains) +
             tree_volume(collective, domains) * bytes * std::max(1 / link, 1 / (nic * domain_ranks));
    default: {
      const double share = topology == Topology::kRails ? 1 : fabric.spine_share;
      const double inside = ring_volume(collective, g) * bytes / link;
      const double outside = ring_volume(collective, domains) * bytes / domain_ranks / (nic * share);
      return inside_latency + passes + fabric.nic_latency_s * 2 * log2_of(domains) + std::max(inside, outside);
    }
  }
}

}  // namespace trireme::plan
