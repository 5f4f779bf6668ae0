#include "diagnose/topology.h"

#include <gmock/gmock.h>

#include "diagnose/from_samples.h"

namespace trireme::diagnose {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

using Numa = std::vector<std::optional<int>>;

// Oracle: by hand, the words of the legends of nvidia-smi (old and new), rocm-smi, amd-smi and xpu-smi.
TEST(TopologyLink, KnowsTheWordsOfAllTools) {
  EXPECT_EQ(parse_link("NV12").lanes, 12);
  EXPECT_EQ(parse_link("NV12").kind, LinkKind::kFabric);
  EXPECT_EQ(parse_link("XL16").lanes, 16);
  EXPECT_EQ(parse_link("XL*").kind, LinkKind::kFabric);
  EXPECT_EQ(parse_link("SOC").kind, LinkKind::kSys);
  EXPECT_EQ(parse_link("XGMI").kind, LinkKind::kFabric);
  for (const char* word : {"NV", "NV0", "NVL", "NV99999999999", "0-23", "", "x"})
    EXPECT_EQ(parse_link(word).kind, LinkKind::kUnknown) << word;
}

constexpr const char* kUnderlined =
    "\t\x1b[4mGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    "GPU0\t X \tNV4\tPHB\t0-7\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\t\t1\n"
    "mlx5_0\tPHB\tSYS\t X \t\t\n";

// Oracle: by hand: escapes as the tool writes them, cards by their device name, an empty affinity.
TEST(Topology, ReadsWhatTheToolWrites) {
  const Report report = report_of(kUnderlined);
  ASSERT_TRUE(report.facts.topology);
  const Topology& topology = *report.facts.topology;
  EXPECT_THAT(topology.gpus, Optional(2));
  EXPECT_THAT(topology.nics, Optional(1));
  EXPECT_THAT(topology.nic_devices, ElementsAre("mlx5_0"));
  EXPECT_THAT(topology.links[0], ElementsAre("X", "NV4"));
  EXPECT_EQ(topology.numa, (Numa{std::nullopt, 1}));
  EXPECT_THAT(topology.cpus, ElementsAre("0-7", ""));
  EXPECT_THAT(topology.nearest_nic[0], ElementsAre("mlx5_0"));
  EXPECT_THAT(topology.nearest_nic[1], IsEmpty());
  EXPECT_EQ(codes(report), "topology.far_nic");
}

// Oracle: by hand. 1 GB over a ring of 4 at 31.5 GB/s: 2 * 3/4 / 31.5 s = 47.6 ms.
TEST(Topology, TellsGroupsAndWhatTheWorstLinkCosts) {
  const Report report = report_of(
      "     GPU0 GPU1 GPU2 GPU3 CPU Affinity NUMA Affinity\n"
      "GPU0  X   NV4  SYS  SYS  0-3  0\n"
      "GPU1 NV4   X   SYS  SYS  4-7  1\n"
      "GPU2 SYS  SYS   X   NV4  8-11 2\n"
      "GPU3 SYS  SYS  NV4   X   12-15 3\n");
  EXPECT_EQ(codes(report), "topology.nvlink_islands");
  EXPECT_THAT(report.findings[0].cause, HasSubstr("0,1 | 2,3"));
  EXPECT_THAT(report.findings[0].advice, HasSubstr("degree of 2 stays on the fast links; 4 does not"));
  EXPECT_THAT(report.findings[0].advice, HasSubstr("NUMA nodes 0,1"));
  EXPECT_THAT(report.checks.at(0).text, HasSubstr("worst link GPU0-GPU2 SYS"));
  EXPECT_THAT(report.checks.at(0).text, HasSubstr("at least 48 ms"));
}

// Oracle: by hand: one pair has fewer links than the rest.
TEST(Topology, SeesLinksThatAreDown) {
  const Report report = report_of(
      "     GPU0 GPU1 GPU2\n"
      "GPU0  X   NV12 NV12\n"
      "GPU1 NV12  X   NV11\n"
      "GPU2 NV12 NV11  X  \n");
  EXPECT_EQ(codes(report), "topology.fewer_links");
  EXPECT_THAT(report.findings[0].cause, HasSubstr("GPU1-GPU2 NV11"));
  // Oracle: the cube of eight V100s has one and two links by design.
  EXPECT_EQ(codes(report_of("     GPU0 GPU1 GPU2 GPU3\n"
                            "GPU0  X   NV1  NV1  NV2\n"
                            "GPU1 NV1   X   NV2  NV1\n"
                            "GPU2 NV1  NV2   X   NV2\n"
                            "GPU3 NV2  NV1  NV2   X\n")),
            "");
}

// Oracle: by hand: a row that ends early and one that is missing.
TEST(Topology, SaysThatATableIsCut) {
  const Report report = report_of(
      "     GPU0 GPU1 GPU2\n"
      "GPU0  X   NV12 NV12\n"
      "GPU1 NV12  X\n");
  EXPECT_EQ(codes(report), "topology.cut");
  EXPECT_THAT(report.findings[0].cause, HasSubstr("of 2 of 3 GPUs"));
  EXPECT_THAT(report.facts.topology->links[1], ElementsAre("NV12", "X", ""));
  EXPECT_THAT(report.facts.topology->links[2], ElementsAre("", "", ""));
}

// Oracle: by hand: pairs of a P2P matrix that are not OK.
TEST(Topology, PeerToPeerMatrix) {
  const Report report = report_of(
      " \tGPU0\tGPU1\t\n"
      " GPU0\tX\tCNS\t\n"
      " GPU1\tCNS\tX\t\n"
      "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n");
  EXPECT_EQ(codes(report), "topology.no_p2p");
  EXPECT_EQ(report.facts.topology->shows, "p2p");
  EXPECT_EQ(report.facts.topology->nics, std::nullopt);
  EXPECT_EQ(report.facts.topology->nvlink, std::nullopt);
}

// Oracle: by hand, in the form of rocm-smi --showtopo: only the table of link types is one of links.
TEST(Topology, RocmSmi) {
  const Report report = report_of(
      "============================ ROCm System Management Interface ============================\n"
      "================================ Weight between two GPUs =================================\n"
      "       GPU0         GPU1         GPU2         \n"
      "GPU0   0            15           40           \n"
      "GPU1   15           0            40           \n"
      "GPU2   40           40           0            \n"
      "\n"
      "=============================== Link Type between two GPUs ===============================\n"
      "       GPU0         GPU1         GPU2         \n"
      "GPU0   0            XGMI         PCIE         \n"
      "GPU1   XGMI         0            PCIE         \n"
      "GPU2   PCIE         PCIE         0            \n"
      "\n"
      "======================================= Numa Nodes =======================================\n"
      "GPU[0]\t\t: (Topology) Numa Node: 0\n"
      "GPU[0]\t\t: (Topology) Numa Affinity: 0\n"
      "GPU[2]\t\t: (Topology) Numa Node: 1\n"
      "================================== End of ROCm SMI Log ===================================\n");
  ASSERT_TRUE(report.facts.topology);
  EXPECT_THAT(report.facts.more_topologies, IsEmpty());
  EXPECT_THAT(report.facts.topology->links[0], ElementsAre("X", "XGMI", "PCIE"));
  EXPECT_EQ(report.facts.topology->numa, (Numa{0, std::nullopt, 1}));
  EXPECT_EQ(codes(report), "topology.nvlink_islands");
}

// Oracle: by hand, in the form that Intel documents for xpu-smi topology -m.
TEST(Topology, XpuSmi) {
  const Report report = report_of(
      "         GPU 0/0|GPU 0/1|GPU 1/0|GPU 1/1|CPU Affinity\n"
      "GPU 0/0 |S      |MDF    |XL*    |XL16   |0-23,48-71\n"
      "GPU 0/1 |MDF    |S      |XL16   |XL*    |0-23,48-71\n"
      "GPU 1/0 |XL*    |XL16   |S      |MDF    |24-47,72-95\n"
      "GPU 1/1 |XL16   |XL*    |MDF    |S      |24-47,72-95\n");
  ASSERT_TRUE(report.facts.topology);
  EXPECT_THAT(report.facts.topology->gpus, Optional(4));
  EXPECT_THAT(report.facts.topology->links[0], ElementsAre("S", "MDF", "XL*", "XL16"));
  EXPECT_EQ(codes(report), "");
}

// Oracle: by hand, in the form of amd-smi topology.
TEST(Topology, AmdSmi) {
  const Report report = report_of(
      "LINK TYPE TABLE:\n"
      "             0000:0c:00.0 0000:22:00.0\n"
      "0000:0c:00.0 SELF         XGMI\n"
      "0000:22:00.0 XGMI         SELF\n");
  ASSERT_TRUE(report.facts.topology);
  EXPECT_THAT(report.facts.topology->links[1], ElementsAre("XGMI", "SELF"));
}

TEST(Topology, IsNotSeenInProse) {
  for (const char* text :
       {"GPU0 is fine\n", "GPU0 GPU1\n", "GPU0\nGPU0 is busy\n", "GPU0 GPU1 CPU Affinity\nGPU0 hot\n"}) {
    EXPECT_FALSE(report_of(text).facts.topology) << text;
  }
}

struct Sample {
  const char* file;
  int gpus;
  std::optional<int> nics;
  const char* link01;
  Numa numa;
  std::vector<std::string> nearest0;
};

class TopologySamples : public testing::TestWithParam<Sample> {};

// Oracle: what collected reports say that a reader should answer (topo/expected.tsv).
TEST_P(TopologySamples, AsExpected) {
  TRIREME_NEEDS_SAMPLES(samples);
  const Sample& want = GetParam();
  const Report report = read_all({samples + "/topo/" + want.file});
  ASSERT_TRUE(report.facts.topology);
  const Topology& topology = *report.facts.topology;
  EXPECT_THAT(topology.gpus, Optional(want.gpus));
  EXPECT_EQ(topology.nics, want.nics);
  for (int a = 0; a < want.gpus; ++a) {
    ASSERT_EQ(topology.links[static_cast<size_t>(a)].size(), static_cast<size_t>(want.gpus));
    EXPECT_EQ(topology.links[static_cast<size_t>(a)][static_cast<size_t>(a)], "X");
  }
  EXPECT_EQ(want.gpus > 1 ? topology.links[0][1] : "", want.link01);
  EXPECT_EQ(topology.numa, want.numa);
  EXPECT_EQ(topology.nearest_nic.empty() ? std::vector<std::string>{} : topology.nearest_nic[0], want.nearest0);
}

const Numa kTwoSockets = {0, 0, 0, 0, 1, 1, 1, 1};

INSTANTIATE_TEST_SUITE_P(
    All, TopologySamples,
    testing::Values(
        Sample{"t02_a100x8_nv12_8nic_two_per_switch.txt", 8, 8, "NV12", kTwoSockets, {"NIC0", "NIC1"}},
        Sample{"t03_rtx4090x8_all_sys_8numa_4nic.txt", 8, 4, "SYS", {3, 2, 1, 0, 7, 6, 5, 4}, {}},
        Sample{"t04_h100x8_topo_mp_12nic_tabs_odd_even_cpus.txt", 8, 12, "NODE", kTwoSockets, {"NIC0", "NIC1", "NIC2"}},
        Sample{"t07_a100pcie_x4_nvlink_pairs_4numa.txt", 4, 0, "NV12", {0, 1, 2, 3}, {}},
        Sample{"t09_gb10_1gpu_4nic_gpu_row_only.txt", 1, 4, "", {0}, {"NIC0", "NIC1", "NIC2", "NIC3"}},
        Sample{"t12_2gpu_nv2_numa_na.txt", 2, 0, "NV2", {std::nullopt, std::nullopt}, {}},
        Sample{"t13_2gpu_phb_numa_na.txt", 2, 0, "PHB", {std::nullopt, std::nullopt}, {}},
        Sample{"t14_a100x8_nv12_narrow_columns.txt", 8, 0, "NV12", kTwoSockets, {}},
        Sample{"t15_h100x8_nv18_narrow_columns.txt", 8, 0, "NV18", kTwoSockets, {}},
        Sample{"t16_h100x8_nv18_hyperthread_ranges.txt", 8, 0, "NV18", kTwoSockets, {}},
        Sample{"t20_h100x8_topo_p2p_r_ok.txt", 8, std::nullopt, "OK", {}, {}}));

// Oracle: the column of the same table that says what is hard about each.
TEST(TopologySamples, WhatIsSaidAboutThem) {
  TRIREME_NEEDS_SAMPLES(samples);
  const auto read = [&](const char* file) { return read_all({samples + "/topo/" + file}); };
  EXPECT_EQ(codes(read("t02_a100x8_nv12_8nic_two_per_switch.txt")), "");
  const Report t02 = read("t02_a100x8_nv12_8nic_two_per_switch.txt");
  EXPECT_EQ(t02.facts.topology->nearest_nic_link[0], "PXB");
  EXPECT_EQ(t02.facts.topology->nic_devices[3], "mlx5_3");
  for (size_t a = 0; a < 8; ++a) {
    for (size_t b = 0; b < 8; ++b) EXPECT_EQ(t02.facts.topology->links[a][b], a == b ? "X" : "NV12");
  }

  const Report t03 = read("t03_rtx4090x8_all_sys_8numa_4nic.txt");
  EXPECT_EQ(codes(t03), "topology.far_nic topology.no_nvlink");
  EXPECT_THAT(find(t03, "topology.far_nic")->cause, HasSubstr("near a card: GPU6"));
  EXPECT_EQ(t03.facts.topology->nearest_nic[6].size(), 4U);
  EXPECT_EQ(t03.facts.topology->nearest_nic_link[6], "PHB");
  EXPECT_THAT(t03.facts.topology->nvlink, Optional(false));

  const Report t04 = read("t04_h100x8_topo_mp_12nic_tabs_odd_even_cpus.txt");
  EXPECT_EQ(codes(t04), "topology.nvlink_hidden");
  EXPECT_EQ(t04.facts.topology->nvlink, std::nullopt);
  EXPECT_EQ(t04.facts.topology->cpus[0], "0,2,4,6,8,10");
  EXPECT_EQ(t04.facts.topology->nearest_nic_link[0], "PIX");

  const Report t07 = read("t07_a100pcie_x4_nvlink_pairs_4numa.txt");
  EXPECT_EQ(codes(t07), "topology.nvlink_islands");
  EXPECT_THAT(t07.findings[0].advice, HasSubstr("degree of 2 stays on the fast links; 4 does not"));
  EXPECT_THAT(t07.findings[0].advice, HasSubstr("NUMA nodes 0,1"));

  EXPECT_EQ(codes(read("t09_gb10_1gpu_4nic_gpu_row_only.txt")), "");
  EXPECT_EQ(read("t13_2gpu_phb_numa_na.txt").facts.topology->nvlink, std::nullopt)
      << "without a legend nothing says so";
  EXPECT_EQ(read("t16_h100x8_nv18_hyperthread_ranges.txt").facts.topology->cpus[7], "52-103,156-207");
  EXPECT_THAT(read("t20_h100x8_topo_p2p_r_ok.txt").checks.at(0).text, HasSubstr("peer-to-peer OK between all"));
}

}  // namespace
}  // namespace trireme::diagnose
