#include <gmock/gmock.h>

#include "base/str.h"
#include "diagnose/from_samples.h"
#include "diagnose/nccl_log.h"

namespace trireme::diagnose {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;

// Oracle: taken apart by hand; the prefixes are those of mpirun --tag-output, srun --label, trireme run and torchrun.
TEST(NcclLine, TakesLinesApartWhateverIsInFront) {
  const auto line =
      parse_nccl_line("[1,3]<stdout>:node-01:29881:30401 [0] init.cc:497 NCCL WARN Duplicate GPU detected");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->host, "node-01");
  EXPECT_EQ(line->pid, 29881);
  EXPECT_EQ(line->tid, 30401);
  EXPECT_THAT(line->device, Optional(0));
  EXPECT_THAT(line->prefix_rank, Optional(3));
  EXPECT_EQ(line->level, "WARN");
  EXPECT_EQ(line->source, "init.cc:497");
  EXPECT_EQ(line->text, "Duplicate GPU detected");

  const auto stamped =
      parse_nccl_line("[2026-05-05 06:16:47] node-01:189884:189884 [3] plugin/net.cc:334 NCCL WARN Failed");
  ASSERT_TRUE(stamped);
  EXPECT_EQ(stamped->host, "node-01");
  EXPECT_THAT(stamped->device, Optional(3));
  EXPECT_FALSE(stamped->prefix_rank);

  const auto call = parse_nccl_line("5: node-01:986207:986207 NCCL CALL ncclGroupStart()");
  ASSERT_TRUE(call);
  EXPECT_FALSE(call->device);
  EXPECT_THAT(call->prefix_rank, Optional(5));
  EXPECT_EQ(call->level, "CALL");

  EXPECT_EQ(parse_nccl_line("NCCL version 2.19.3+cuda12.3")->text, "2.19.3+cuda12.3");
  EXPECT_THAT(parse_nccl_line("[rank12]: h:1:2 [0] NCCL INFO x")->prefix_rank, Optional(12));
  EXPECT_THAT(rank_in_front("[default3]:h:1:2 [3] NCCL INFO x"), Optional(3));
  for (const char* other :
       {"", "we use NCCL here", "NCCL INFO x", "a:b:c NCCL INFO x", "h:1:2 NCCL info x", ":1:2 NCCL INFO x"}) {
    EXPECT_FALSE(parse_nccl_line(other)) << other;
  }
}

TEST(NcclLine, DevicesOfANetLine) {
  const NcclDevices ib = parse_nccl_devices("[0]mlx5_2:1/IB/SHARP [1]mlx5_bond_0:1/RoCE [RO]; OOB ib0:192.0.2.1<0>");
  EXPECT_THAT(ib.devices, ElementsAre("mlx5_2:1", "mlx5_bond_0:1"));
  EXPECT_TRUE(ib.infiniband && ib.roce);
  EXPECT_EQ(ib.oob, "ib0");
  EXPECT_THAT(parse_nccl_devices("[0]eth0:192.0.2.23<0> [1]eth1:fe80::1%eth1<0>").devices, ElementsAre("eth0", "eth1"));
}

// Oracle: by hand. Sockets on one host and InfiniBand on the other; ranks from the line of the communicator.
TEST(NcclNetwork, SaysThatHostsDisagree) {
  const Report report = report_of(
      "a:10:11 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
      "a:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.1<0>\n"
      "a:10:11 [0] NCCL INFO Using network IB\n"
      "b:20:21 [0] NCCL INFO NET/IB : No device found.\n"
      "b:20:21 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.2<0>\n"
      "b:20:21 [0] NCCL INFO Using network Socket\n"
      "a:10:11 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 4 nranks 8 cudaDev 0 nvmlDev 0 busId 1000 commId 0x1 - "
      "Init START\n");
  EXPECT_EQ(codes(report), "nccl.transports_differ nccl.socket");
  EXPECT_THAT(report.findings[0].cause, HasSubstr("InfiniBand or RoCE on a; Socket on b"));
  EXPECT_EQ(report.findings[1].host, "b");
  EXPECT_EQ(report.findings[1].evidence.at(0).line, 5);
  EXPECT_EQ(report.findings[1].evidence.at(1).line, 4);
  ASSERT_EQ(report.facts.network.size(), 2U);
  EXPECT_THAT(report.facts.network[0].rank, Optional(4));
  EXPECT_THAT(report.facts.network[0].transport, Optional(std::string("IB")));
  EXPECT_THAT(report.facts.network[0].devices, ElementsAre("mlx5_0:1"));
  EXPECT_THAT(report.facts.versions.nccl, Optional(std::string("2.21.5+cuda12.4")));
}

// Oracle: by hand: an interface of Docker is reachable from this host only.
TEST(NcclNetwork, KnowsInterfacesThatOthersCannotReach) {
  const Report report = report_of("a:1:2 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>\n");
  EXPECT_EQ(codes(report), "nccl.local_interface");
  EXPECT_EQ(report.findings[0].severity, Severity::kError);
  EXPECT_EQ(codes(report_of("a:1:2 [0] NCCL INFO Using network IB\na:1:3 [1] NCCL INFO Using network IB\n")), "");
}

// Oracle: by hand.
// Found by fuzzing: a line that was cut behind the network's name, beside one without a device.
TEST(NcclNetwork, ALineThatNamesNoInterface) {
  for (const char* cut : {"b:20:21 [0] NCCL INFO NET/Socket : Using [0]", "b:20:21 [0] NCCL INFO NET/Socket : Using",
                          "b:20:21 [0] NCCL INFO NET/Socket :id  23654 on x [0000:07:00] y"}) {
    const Report report = report_of(str("b:20:21 [0] NCCL INFO NET/IB : No device found.\n", cut, "\n"));
    for (const Finding& finding : report.findings) EXPECT_THAT(finding.cause, testing::Not(HasSubstr("()")));
  }
}

TEST(NcclNetwork, OtherProvidersAndVersions) {
  const Report report = report_of(
      "NCCL version 2.18.1+cuda12.1\n"
      "a:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n"
      "a:1:2 [0] NCCL INFO Using network AWS Libfabric\n"
      "b:1:2 [0] NCCL INFO NCCL version 2.19.3+cuda12.3\n");
  EXPECT_EQ(codes(report), "nccl.versions_differ");
  EXPECT_THAT(report.facts.network.at(0).transport, Optional(std::string("OFI/efa")));
}

// Oracle: what collected reports say that a reader should answer (nccl/expected.tsv).
TEST(NcclNetwork, Samples) {
  TRIREME_NEEDS_SAMPLES(samples);
  const auto read = [&](const char* file) { return read_all({samples + "/nccl/" + file}); };
  {
    const Report n01 = read("n01_4x2_ib_sharp_plugin_2.23.log");
    EXPECT_EQ(codes(n01), "") << "good";
    EXPECT_THAT(n01.facts.versions.nccl, Optional(std::string("2.23.4+cuda12.4")));
    EXPECT_THAT(n01.facts.versions.cuda, Optional(std::string("12.4")));
    ASSERT_EQ(n01.facts.network.size(), 8U);
    for (int rank = 0; rank < 8; ++rank) {
      const Network& one = n01.facts.network[static_cast<size_t>(rank)];
      EXPECT_THAT(one.rank, Optional(rank));
      EXPECT_THAT(one.host, Optional("node-0" + std::to_string(rank / 2 + 1)));
      EXPECT_THAT(one.transport, Optional(std::string("IB")));
      EXPECT_THAT(one.plugin, Optional(std::string("IBext_v8")));
      EXPECT_THAT(one.devices, ElementsAre("mlx5_2:1", "mlx5_0:1", "mlx5_6:1", "mlx5_8:1", "mlx5_9:1", "mlx5_4:1"));
    }
  }
  {
    const Report n02 = read("n02_socket_only_single_rank_2.19.log");
    EXPECT_EQ(codes(n02), "nccl.socket nccl.one_rank");
    EXPECT_THAT(n02.findings[0].cause, HasSubstr("ens7"));
    EXPECT_FALSE(n02.has_errors());
    EXPECT_THAT(n02.facts.versions.nccl, Optional(std::string("2.19.3+cuda12.3")));
    EXPECT_THAT(n02.facts.network.at(0).transport, Optional(std::string("Socket")));
    EXPECT_THAT(n02.facts.network.at(0).devices, ElementsAre("ens7"));
  }
  {
    const Report n03 = read("n03_ipoib_bootstrap_with_plugin_2.1x.log");
    EXPECT_EQ(codes(n03), "nccl.no_verbs_device");
    EXPECT_TRUE(n03.has_errors());
    EXPECT_THAT(n03.findings[0].cause, HasSubstr("ibp12s0"));
    EXPECT_THAT(n03.findings[0].advice, HasSubstr("/dev/infiniband"));
    EXPECT_FALSE(n03.facts.versions.nccl);
  }
  {
    const Report n07 = read("n07_ib_found_but_unreachable_error12.log");
    EXPECT_NE(find(n07, "nccl.ib_and_roce_mixed"), nullptr);
    EXPECT_THAT(n07.facts.network.at(0).transport, Optional(std::string("IB+RoCE")));
  }
  {
    const Report n08 = read("n08_net_lines_one_per_situation.log");
    EXPECT_NE(find(n08, "nccl.transports_differ"), nullptr);
    EXPECT_EQ(find(n08, "nccl.socket", "node-01"), nullptr);
    EXPECT_NE(find(n08, "nccl.ib_and_roce_mixed", "node-02"), nullptr);
    EXPECT_EQ(find(n08, "nccl.socket", "node-03"), nullptr) << "FastSocket is another transport";
    for (const char* node : {"node-04", "node-05", "node-06"})
      EXPECT_NE(find(n08, "nccl.socket", node), nullptr) << node;
    EXPECT_THAT(find(n08, "nccl.socket", "node-05")->advice, HasSubstr("4 to 5 times slower"));
    EXPECT_THAT(n08.facts.network.at(2).transport, Optional(std::string("FastSocket")));
  }
  {
    const Report n09 = read("n09_style_of_2.30_with_timestamp.log");
    EXPECT_THAT(n09.facts.versions.nccl, Optional(std::string("2.30.3+cuda13.0")));
    EXPECT_THAT(n09.facts.network.at(0).transport, Optional(std::string("IB")));
  }
}

}  // namespace
}  // namespace trireme::diagnose
