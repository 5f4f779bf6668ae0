// Tables of what lies between GPUs and network cards: nvidia-smi topo -m, -mp and -p2p of all ages, rocm-smi --showtopo, amd-smi topology,
// xpu-smi topology -m; with blanks or tabs, as pasted.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "diagnose/reader.h"

namespace trireme::diagnose {

/// How good a link is, from any tool's word for it.
enum class LinkKind { kSelf, kFabric, kPix, kPxb, kPhb, kNode, kSys, kPcie, kP2pOk, kP2pNot, kUnknown };

struct Link {
  LinkKind kind = LinkKind::kUnknown;
  int lanes = 0;  ///< of kFabric where told: 12 of "NV12", 16 of "XL16"
};

/// kUnknown for a word that no table uses.
[[nodiscard]] Link parse_link(std::string_view word);

/// How far it is: 0 for kFabric and kP2pOk, more for each step away. For comparing only.
[[nodiscard]] int distance(LinkKind kind) noexcept;

[[nodiscard]] std::unique_ptr<LineReader> make_topology_reader();

/// Findings about a topology, and one row of the table ("8 GPUs, NV12 between all").
void judge_topology(const Topology& topology, Report& report);

}  // namespace trireme::diagnose
