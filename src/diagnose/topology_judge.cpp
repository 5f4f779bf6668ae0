#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/str.h"
#include "diagnose/scan.h"
#include "diagnose/topology.h"

namespace trireme::diagnose {
namespace {

/// Bytes per second and direction that one link carries at most, in GB/s, as vendors publish them. NVLink 2 to 4 have 25 per link (NVLink 5 has
/// 50, which the table does not tell), a PCIe 4.0 x16 slot has 32, Xe Link 26.5 per port of 4 lanes.
constexpr double kNvlinkGbPerS = 25;
constexpr double kPcie4GbPerS = 31.5;

double most_gb_per_s(std::string_view word, const Link& link) {
  if (link.kind == LinkKind::kFabric) {
    if (word.starts_with("NV")) return link.lanes * kNvlinkGbPerS;
    if (word.starts_with("XL") && link.lanes > 0) return link.lanes / 4.0 * 26.5;
    return 0;
  }
  return link.kind == LinkKind::kUnknown || link.kind == LinkKind::kP2pOk || link.kind == LinkKind::kP2pNot
             ? 0
             : kPcie4GbPerS;
}

const char* meaning(LinkKind kind) {
  switch (kind) {
    case LinkKind::kPix:
      return "one PCIe switch";
    case LinkKind::kPxb:
      return "several PCIe switches";
    case LinkKind::kPhb:
      return "the CPU's PCIe host bridge";
    case LinkKind::kNode:
      return "two PCIe host bridges of one NUMA node";
    case LinkKind::kSys:
      return "the link between CPU sockets";
    case LinkKind::kPcie:
      return "PCIe";
    default:
      return "";
  }
}

struct Pair {
  size_t a = 0;
  size_t b = 0;
  std::string word;
  Link link;
};

std::vector<Pair> pairs_of(const Topology& topology) {
  std::vector<Pair> pairs;
  for (size_t a = 0; a < topology.links.size(); ++a) {
    for (size_t b = a + 1; b < topology.links[a].size(); ++b) {
      const std::string& word = topology.links[a][b];
      if (!word.empty()) pairs.push_back({a, b, word, parse_link(word)});
    }
  }
  return pairs;
}

/// Groups of GPUs that links of kFabric join, in order; single ones too.
std::vector<std::vector<size_t>> islands(size_t gpus, const std::vector<Pair>& pairs) {
  std::vector<size_t> group(gpus);
  for (size_t i = 0; i < gpus; ++i) group[i] = i;
  for (const Pair& pair : pairs) {
    if (pair.link.kind != LinkKind::kFabric || pair.b >= gpus) continue;
    const size_t from = std::max(group[pair.a], group[pair.b]);
    const size_t to = std::min(group[pair.a], group[pair.b]);
    std::replace(group.begin(), group.end(), from, to);
  }
  std::map<size_t, std::vector<size_t>> by_group;
  for (size_t i = 0; i < gpus; ++i) by_group[group[i]].push_back(i);
  std::vector<std::vector<size_t>> found;
  for (auto& [first, members] : by_group) found.push_back(std::move(members));
  return found;
}

Evidence evidence_of(const Topology& topology, std::string text) { return {topology.file, 0, std::move(text)}; }

std::string pair_text(const Topology& topology, const Pair& pair) {
  return str(topology.gpu_names[pair.a], "-", topology.gpu_names[pair.b], " ", pair.word);
}

/// "GPU0, GPU1 | GPU2, GPU3"
std::string groups_text(const std::vector<std::vector<size_t>>& groups) {
  std::string text;
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < groups.size() && i < kShown; ++i) text += str(i == 0 ? "" : " | ", join(groups[i], ","));
  return groups.size() > kShown ? text + " | ..." : text;
}

void judge_p2p(const Topology& topology, const std::vector<Pair>& pairs, Report& report, Check& check) {
  std::vector<const Pair*> bad;
  for (const Pair& pair : pairs) {
    if (pair.link.kind == LinkKind::kP2pNot) bad.push_back(&pair);
  }
  check.text = bad.empty() ? str(topology.gpu_names.size(), " GPUs, peer-to-peer OK between all")
                           : str(topology.gpu_names.size(), " GPUs, no peer-to-peer between ", bad.size(), " of ",
                                 pairs.size(), " pairs");
  if (bad.empty()) return;
  check.state = Check::State::kWarning;
  Finding finding;
  finding.code = "topology.no_p2p";
  finding.severity = Severity::kWarning;
  finding.confidence = 0.9;
  finding.cause = str("GPUs cannot read each other's memory: ", bad.size(), " of ", pairs.size(), " pairs, such as ",
                      pair_text(topology, *bad[0]));
  finding.advice =
      "CNS: the chipset does not allow it; GNS: the GPU model does not; TNS: the topology (two sockets); NS, U: not "
      "supported or not known. "
      "NCCL then copies through host memory, which needs room in /dev/shm. If ACS or an IOMMU is in the way, switch it "
      "off "
      "(trireme doctor, row 'acs and iommu').";
  for (const Pair* pair : bad) add_evidence(finding, evidence_of(topology, pair_text(topology, *pair)));
  report.findings.push_back(std::move(finding));
}

void judge_islands(const Topology& topology, const std::vector<std::vector<size_t>>& groups, const Pair& worst,
                   Report& report) {
  size_t largest = 1;
  size_t smallest = groups.front().size();
  for (const auto& group : groups) {
    largest = std::max(largest, group.size());
    smallest = std::min(smallest, group.size());
  }
  Finding finding;
  finding.code = "topology.nvlink_islands";
  finding.severity = Severity::kWarning;
  finding.confidence = 0.9;
  finding.cause =
      str("fast links join GPUs only in groups: ", groups_text(groups), "; between groups it is ", worst.word);
  finding.advice =
      str("A tensor-parallel degree of ", smallest == largest ? largest : std::max<size_t>(smallest, 1),
          smallest > 1 ? " stays on the fast links; " : ": a GPU without fast links is among them; ", 2 * largest,
          " does not. Put GPUs of one group into one tensor-parallel group (CUDA_VISIBLE_DEVICES orders them) and let "
          "data or "
          "pipeline parallelism cross groups.");
  add_evidence(finding, evidence_of(topology, pair_text(topology, worst)));
  // Linked GPUs on two NUMA nodes: no fault, but a rank bound to the wrong node reads its data across sockets.
  for (const auto& group : groups) {
    std::set<int> nodes;
    for (const size_t gpu : group) {
      const std::optional<int> node = gpu < topology.numa.size() ? topology.numa[gpu] : std::nullopt;
      if (node) nodes.insert(*node);
    }
    if (nodes.size() > 1) {
      finding.advice += str(" Linked GPUs ", join(group, ","), " sit on NUMA nodes ", join(nodes, ","),
                            ": bind each rank to its own GPU's node.");
      break;
    }
  }
  report.findings.push_back(std::move(finding));
}

/// One row or pair with fewer links than the rest of a full mesh: links that are down.
void judge_mesh(const Topology& topology, const std::vector<Pair>& pairs, Report& report) {
  std::map<int, size_t> count;
  for (const Pair& pair : pairs) ++count[pair.link.lanes];
  const auto usual =
      std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (count.size() < 2 || usual->second * 2 <= pairs.size())
    return;  // machines of the V100's time have one and two links on purpose
  Finding finding;
  finding.code = "topology.fewer_links";
  finding.severity = Severity::kWarning;
  finding.confidence = 0.8;
  for (const Pair& pair : pairs) {
    if (pair.link.lanes >= usual->first) continue;
    if (finding.cause.empty()) {
      finding.cause = str(pair_text(topology, pair), " where most pairs have ", usual->first, " links: links are down");
    }
    add_evidence(finding, evidence_of(topology, pair_text(topology, pair)));
  }
  if (finding.cause.empty()) return;
  finding.advice =
      "See which are: nvidia-smi nvlink --status; then the kernel log for Xid 74 and a reset of the GPUs (nvidia-smi "
      "-r).";
  report.findings.push_back(std::move(finding));
}

void judge_no_fabric(const Topology& topology, const Pair& worst, Report& report) {
  if (worst.link.kind != LinkKind::kSys && worst.link.kind != LinkKind::kNode && worst.link.kind != LinkKind::kPhb)
    return;
  Finding finding;
  finding.code = "topology.no_nvlink";
  finding.severity = Severity::kInfo;
  finding.confidence = 0.9;
  finding.cause = str("no NVLink: GPUs talk over PCIe, at worst (", pair_text(topology, worst), ") through ",
                      meaning(worst.link.kind));
  finding.advice =
      "Tensor parallelism sends every layer's activations over it; prefer data parallelism with large batches, "
      "pipeline parallelism, or fewer, "
      "larger GPUs. 'trireme plan' weighs them.";
  add_evidence(finding, evidence_of(topology, pair_text(topology, worst)));
  report.findings.push_back(std::move(finding));
}

void judge_nics(const Topology& topology, Report& report) {
  if (topology.nic_names.empty()) return;
  std::vector<std::string> far;
  std::vector<std::string> near;
  for (size_t gpu = 0; gpu < topology.nearest_nic.size(); ++gpu) {
    (topology.nearest_nic[gpu].empty() ? far : near).push_back(topology.gpu_names[gpu]);
  }
  if (far.empty()) return;
  Finding finding;
  finding.code = "topology.far_nic";
  finding.severity = Severity::kWarning;
  finding.confidence = 0.8;
  finding.cause = str(join(far), far.size() == 1 ? " reaches" : " reach",
                      " every network card only through the link between CPU sockets (SYS)",
                      near.empty() ? "" : str("; near a card: ", join(near)));
  finding.advice =
      "GPUDirect RDMA is off there by default and traffic to other hosts goes through host memory. Put cards and GPUs "
      "under the same switch or "
      "socket, or let the near GPUs send (NCCL does by PXN where NVLink joins them).";
  add_evidence(finding, evidence_of(topology, join(topology.nic_names)));
  report.findings.push_back(std::move(finding));
}

}  // namespace

void judge_topology(const Topology& topology, Report& report) {
  Check check;
  check.name = "topology";
  check.host = topology.host;
  const std::vector<Pair> pairs = pairs_of(topology);
  const size_t gpus = topology.gpu_names.size();
  if (topology.shows == "p2p") {
    judge_p2p(topology, pairs, report, check);
    report.checks.push_back(std::move(check));
    return;
  }
  check.text = str(gpus, gpus == 1 ? " GPU" : " GPUs");
  if (!topology.nic_names.empty()) check.text += str(", ", topology.nic_names.size(), " network cards");
  if (!pairs.empty()) {
    const Pair& worst = *std::max_element(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
      const int one = distance(a.link.kind);
      const int other = distance(b.link.kind);
      return one != other ? one < other : a.link.lanes > b.link.lanes;
    });
    const bool even =
        std::all_of(pairs.begin(), pairs.end(), [&](const Pair& pair) { return pair.word == worst.word; });
    check.text += even ? str(", ", worst.word, " between all") : str("; worst link ", pair_text(topology, worst));
    const double speed = most_gb_per_s(worst.word, worst.link);
    if (speed > 0) {
      const double ms = 2 * (static_cast<double>(gpus) - 1) / static_cast<double>(gpus) / speed * 1000;
      check.text += str(": at most ", std::llround(speed), " GB/s each way",
                        worst.link.kind == LinkKind::kFabric ? "" : " (PCIe 4.0 x16)", ", so 1 GB of gradients over ",
                        gpus, " GPUs takes at least ", std::llround(ms), " ms");
    }
    const std::vector<std::vector<size_t>> groups = islands(gpus, pairs);
    const bool some =
        std::any_of(pairs.begin(), pairs.end(), [](const Pair& pair) { return pair.link.kind == LinkKind::kFabric; });
    if (some && groups.size() > 1) {
      check.state = Check::State::kWarning;
      judge_islands(topology, groups, worst, report);
    } else if (some) {
      judge_mesh(topology, pairs, report);
    } else if (topology.nvlink == false) {
      judge_no_fabric(topology, worst, report);
    }
  }
  judge_nics(topology, report);
  report.checks.push_back(std::move(check));
}

}  // namespace trireme::diagnose
