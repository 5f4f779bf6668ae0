// Oracle: published measurements (NCCL all-reduce in one host, by the authors of vTrain, github.com/VIA-Research/vTrain, trace/), within a
// stated mean error; closed forms of hand-computed cases; and what more bandwidth may never do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/plan/collective_time.h"

namespace trireme::plan {
namespace {

using ::testing::HasSubstr;

constexpr double kMib = 1024.0 * 1024.0;

struct Row {
  int ranks;
  double link_bytes_per_s;  // NVLinks that the rings of so many GPUs use, 25 GB/s each
  double microseconds[6];   // at 1, 4, 16, 64, 256, 1024 MiB
};
// A100: 12 links to a switch. V100, hybrid cube mesh: one link between two, 4 of 6 for four, all 6 for eight.
constexpr Row kA100[] = {{2, 300e9, {44.2, 61.2, 131.9, 404.7, 1455.8, 5442.8}},
                         {4, 300e9, {51.4, 77.3, 179.6, 543.8, 1929.0, 7259.4}},
                         {8, 300e9, {92.8, 95.8, 232.4, 579.9, 2162.3, 8193.0}}};
constexpr Row kV100[] = {{2, 25e9, {70.1, 208.6, 764.1, 2998.9, 11915, 47610}},
                         {4, 100e9, {67.3, 142.1, 324.2, 1202.1, 4714, 18869}},
                         {8, 150e9, {79.9, 150.9, 273.8, 911.3, 3527.4, 13969}}};

double mean_error(const char* name, const Row (&rows)[3], double link_share, double memory, double passes) {
  double sum = 0, bias = 0, worst = 0;
  for (const Row& row : rows) {
    double bytes = kMib;
    for (const double measured : row.microseconds) {
      Fabric fabric;
      fabric.link_bytes_per_s = row.link_bytes_per_s * link_share;
      fabric.memory_bytes_per_s = memory;
      fabric.memory_passes = passes;
      const double error =
          collective_seconds(Collective::kAllReduce, Topology::kRing, row.ranks, bytes, fabric) * 1e6 / measured - 1;
      sum += std::abs(error);
      bias += error;
      if (std::abs(error) > std::abs(worst)) worst = error;
      bytes *= 4;
    }
  }
  std::printf("%s: mean error %.1f %%, bias %+.1f %%, worst %+.0f %% of 18\n", name, sum / 18 * 100, bias / 18 * 100,
              worst * 100);
  return sum / 18;
}

TEST(CollectiveTime, AllReduceInAHostAsMeasured) {
  // Latency 25 us for both; passes and the links' share fitted on these 18 rows of each.
  EXPECT_LT(mean_error("A100", kA100, 1.0, 2.0e12, 4), 0.055);
  EXPECT_LT(mean_error("V100", kV100, 0.92, 0.9e12, 0.25), 0.055);
}

Fabric hosts_of_8() {
  Fabric fabric;
  fabric.link_bytes_per_s = 400e9;
  fabric.nic_bytes_per_s = 50e9;
  fabric.link_latency_s = 0;
  fabric.nic_latency_s = 0;
  return fabric;
}

TEST(CollectiveTime, HandComputedOn16And64Ranks) {
  const Fabric f = hosts_of_8();
  const auto all_reduce = [&](Topology topology, int64_t n) {
    return collective_seconds(Collective::kAllReduce, topology, n, 8e9, f);
  };
  // Ring of 16: 2 * 15/16 * 8 GB; 8 NICs of 50 GB/s carry as much as a link.
  EXPECT_DOUBLE_EQ(all_reduce(Topology::kRing, 16), 2 * 15.0 / 16 * 8e9 / 400e9);
  // Tree: 2 * 8 GB at the same rate.
  EXPECT_DOUBLE_EQ(all_reduce(Topology::kTree, 16), 2 * 8e9 / 400e9);
  // Rails, 8 hosts: inside 2 * 7/8 * 8 GB / 400; outside 2 * 7/8 * 1 GB / 50, equal here.
  EXPECT_DOUBLE_EQ(all_reduce(Topology::kRails, 64), 2 * 7.0 / 8 * 8e9 / 400e9);
  // A spine that carries half: the outside part takes twice as long.
  Fabric half = f;
  half.spine_share = 0.5;
  EXPECT_DOUBLE_EQ(collective_seconds(Collective::kAllReduce, Topology::kDomains, 64, 8e9, half),
                   2 * 7.0 / 8 * 1e9 / 25e9);
  EXPECT_DOUBLE_EQ(collective_seconds(Collective::kAllReduce, Topology::kRails, 64, 8e9, half),
                   2 * 7.0 / 8 * 8e9 / 400e9);
  // A rack of 72 on one switch needs no NIC at all.
  Fabric rack = f;
  rack.domain_ranks = 72;
  rack.nic_bytes_per_s = 0;
  EXPECT_DOUBLE_EQ(collective_seconds(Collective::kAllGather, Topology::kDomains, 72, 72e9, rack), 71e9 / 400e9);
  // All-to-all over 16: of 16 GB, 7 stay inside (17.5 ms) while 8 leave by one NIC (160 ms).
  EXPECT_DOUBLE_EQ(collective_seconds(Collective::kAllToAll, Topology::kDomains, 16, 16e9, f), 8e9 / 50e9);
  EXPECT_EQ(collective_seconds(Collective::kAllReduce, Topology::kRing, 1, 1e9, f), 0);
}

TEST(CollectiveTime, LatencyOfTheRingGrowsWithDomainsOfTheTreeWithTheirLogarithm) {
  Fabric f = hosts_of_8();
  f.nic_latency_s = 5e-6;
  const auto small = [&](Topology topology, int64_t n) {
    return collective_seconds(Collective::kAllReduce, topology, n, 0, f);
  };
  EXPECT_DOUBLE_EQ(small(Topology::kRing, int64_t{8} * 1024), 2 * 1023 * 5e-6);
  EXPECT_DOUBLE_EQ(small(Topology::kTree, int64_t{8} * 1024), 2 * 10 * 5e-6);
  // Large messages: the ring moves less. Small ones at 100,000 ranks: the tree by far.
  EXPECT_LT(collective_seconds(Collective::kAllReduce, Topology::kRing, 16, 1e9, f),
            collective_seconds(Collective::kAllReduce, Topology::kTree, 16, 1e9, f));
  EXPECT_GT(small(Topology::kRing, 100'000), 100 * small(Topology::kTree, 100'000));
}

TEST(CollectiveTime, MoreBandwidthIsNeverSlowerAndMoreBytesNeverFaster) {
  for (const Topology topology : {Topology::kRing, Topology::kTree, Topology::kDomains, Topology::kRails}) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                        Collective::kBroadcast, Collective::kAllToAll}) {
      for (const int64_t ranks : {2, 7, 8, 9, 64, 1000, 100'000}) {
        for (const double bytes : {1e3, 1e6, 1e9}) {
          Fabric f = hosts_of_8();
          f.spine_share = 0.5;
          if (bytes == 1e6) f.domain_ranks = 1;
          const double base = collective_seconds(collective, topology, ranks, bytes, f);
          EXPECT_GT(base, 0);
          EXPECT_LT(base, 10 * bytes / f.nic_bytes_per_s);
          EXPECT_GE(collective_seconds(collective, topology, ranks, bytes * 2, f), base);
          Fabric faster = f;
          faster.nic_bytes_per_s *= 2;
          EXPECT_LE(collective_seconds(collective, topology, ranks, bytes, faster), base);
          faster = f;
          faster.link_bytes_per_s *= 2;
          EXPECT_LE(collective_seconds(collective, topology, ranks, bytes, faster), base);
        }
      }
    }
  }
}

TEST(CollectiveTime, RefusesWhatItCannotKnow) {
  const auto message = [](auto call) -> std::string {
    try {
      (void)call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  Fabric f = hosts_of_8();
  f.nic_bytes_per_s = 0;
  EXPECT_THAT(message([&] { return collective_seconds(Collective::kAllReduce, Topology::kRing, 16, 1, f); }),
              HasSubstr("nic_bytes_per_s is 0; the rate between domains is required."));
  EXPECT_THAT(message([&] { return collective_seconds(Collective::kAllReduce, Topology::kRing, 0, 1, f); }),
              HasSubstr("ranks is 0"));
  EXPECT_THAT(message([] { return topology_from("rail"); }),
              HasSubstr("unknown topology 'rail'; did you mean 'rails'?"));
}

}  // namespace
}  // namespace trireme::plan
