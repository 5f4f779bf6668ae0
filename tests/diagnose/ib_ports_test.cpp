#include "diagnose/ib_ports.h"

#include <gmock/gmock.h>

#include "diagnose/from_samples.h"

namespace trireme::diagnose {
namespace {

using testing::Eq;
using testing::HasSubstr;
using testing::Optional;

std::string ibstat(const char* type, const char* state, const char* physical, int rate, int lid, const char* layer) {
  std::ostringstream out;
  out << "CA 'mlx5_7'\n\tCA type: " << type << "\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: " << state
      << "\n\t\tPhysical state: " << physical << "\n\t\tRate: " << rate << "\n\t\tBase lid: " << lid
      << "\n\t\tLMC: 0\n\t\tSM lid: " << lid << "\n\t\tLink layer: " << layer << "\n";
  return out.str();
}

// Oracle: by hand, one fault in each.
TEST(IbPorts, JudgesOnePort) {
  EXPECT_EQ(codes(report_of(ibstat("MT4129", "Active", "LinkUp", 400, 7, "InfiniBand"))), "");
  EXPECT_EQ(codes(report_of(ibstat("MT4129", "Active", "LinkUp", 400, 0, "Ethernet"))), "")
      << "LID 0 is normal on RoCE";
  EXPECT_EQ(codes(report_of(ibstat("MT4129", "Active", "LinkUp", 400, 0, "InfiniBand"))), "ports.no_lid");
  EXPECT_EQ(codes(report_of(ibstat("MT4129", "Initializing", "LinkUp", 400, 0, "InfiniBand"))),
            "ports.no_subnet_manager");
  EXPECT_EQ(codes(report_of(ibstat("MT4123", "Active", "LinkUp", 100, 7, "InfiniBand"))), "ports.below_card_rate");
  const Report polling = report_of(ibstat("MT4123", "Down", "Polling", 10, 0, "InfiniBand"));
  EXPECT_EQ(codes(polling), "ports.down");
  EXPECT_TRUE(polling.has_errors()) << "the only port";
  EXPECT_THAT(polling.findings[0].advice, HasSubstr("cable"));
  EXPECT_THAT(polling.facts.ports.at(0).usable, Optional(false));
  EXPECT_EQ(polling.findings[0].evidence.at(0).line, 4);
}

// Oracle: by hand, in the form of ibstatus.
TEST(IbPorts, Ibstatus) {
  const Report report = report_of(
      "Infiniband device 'mlx5_0' port 1 status:\n"
      "\tdefault gid:\t fe80:0000:0000:0000:0002:c903:0031:fdc1\n"
      "\tbase lid:\t 0x1a\n"
      "\tsm lid:\t\t 0x1\n"
      "\tstate:\t\t 4: ACTIVE\n"
      "\tphys state:\t 5: LinkUp\n"
      "\trate:\t\t 200 Gb/sec (4X HDR)\n"
      "\tlink_layer:\t InfiniBand\n"
      "\n"
      "Infiniband device 'mlx5_1' port 2 status:\n"
      "\tbase lid:\t 0x0\n"
      "\tstate:\t\t 1: DOWN\n"
      "\tphys state:\t 3: Disabled\n"
      "\trate:\t\t 40 Gb/sec (4X QDR)\n"
      "\tlink_layer:\t Ethernet\n");
  ASSERT_EQ(report.facts.ports.size(), 2U);
  EXPECT_THAT(report.facts.ports[0].rate_gbps, Optional(200));
  EXPECT_THAT(report.facts.ports[0].usable, Optional(true));
  EXPECT_EQ(report.facts.ports[1].port, 2);
  EXPECT_THAT(report.facts.ports[1].state, Optional(Eq("Down")));
  EXPECT_EQ(codes(report), "ports.down");
  EXPECT_FALSE(report.has_errors()) << "another one works";
}

// Oracle: by hand, in the form of ibv_devinfo -v: 4 lanes of 25 Gb/s.
TEST(IbPorts, IbvDevinfoVerbose) {
  const Report report = report_of(
      "hca_id:\tmlx5_2\n\ttransport:\t\t\tInfiniBand "
      "(0)\n\tvendor_part_id:\t\t\t4119\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
      "\t\t\tsm_lid:\t\t\t3\n\t\t\tport_lid:\t\t9\n\t\t\tlink_layer:\t\tInfiniBand\n\t\t\tactive_width:\t\t4X (2)\n"
      "\t\t\tactive_speed:\t\t25.0 Gbps (32)\n\t\t\tphys_state:\t\tLINK_UP (5)\n");
  ASSERT_EQ(report.facts.ports.size(), 1U);
  EXPECT_THAT(report.facts.ports[0].rate_gbps, Optional(100));
  EXPECT_THAT(report.facts.ports[0].type, Optional(Eq("MT4119")));
  EXPECT_EQ(codes(report), "");
}

// Oracle: by hand: one of three ports is slower; the tool's own failures.
TEST(IbPorts, UnevenRatesAndFailedTools) {
  const std::string good = ibstat("MT4129", "Active", "LinkUp", 400, 7, "InfiniBand");
  const Report report = report_of(good + good + ibstat("MT4129", "Active", "LinkUp", 200, 9, "InfiniBand"));
  EXPECT_EQ(codes(report), "ports.uneven_rates ports.below_card_rate");
  EXPECT_EQ(codes(report_of("Failed to get IB devices list: Function not implemented\n")), "ports.none");
  EXPECT_EQ(codes(report_of("No IB devices found\n")), "ports.none");
}

// Oracle: what collected reports say that a reader should answer (ib/expected.tsv).
TEST(IbPorts, Samples) {
  TRIREME_NEEDS_SAMPLES(samples);
  const auto read = [&](const char* file) { return read_all({samples + "/ib/" + file}); };
  const auto usable = [](const Report& report) {
    return std::count_if(report.facts.ports.begin(), report.facts.ports.end(),
                         [](const Port& port) { return port.usable == true; });
  };
  {
    const Report ib01 = read("ib01_ibstat_a100_8x200_then_ibpanic.txt");
    EXPECT_EQ(ib01.facts.ports.size(), 8U);
    EXPECT_EQ(usable(ib01), 8);
    for (const Port& port : ib01.facts.ports) EXPECT_THAT(port.rate_gbps, Optional(200));
    EXPECT_EQ(codes(ib01), "ports.device_unreadable");
    EXPECT_THAT(ib01.findings[0].cause, HasSubstr("mlx5_8"));
    EXPECT_THAT(ib01.checks.at(0).text, HasSubstr("8 x 200 Gb/s InfiniBand"));
  }
  {
    const Report ib02 = read("ib02_ibstat_cx7_roce_400.txt");
    EXPECT_EQ(codes(ib02), "");
    EXPECT_THAT(ib02.checks.at(0).text, HasSubstr("1 x 400 Gb/s RoCE"));
  }
  {
    const Report ib03 = read("ib03_ibstat_down_and_disabled_rate40.txt");
    EXPECT_EQ(ib03.facts.ports.size(), 1U);
    EXPECT_EQ(usable(ib03), 0);
    EXPECT_EQ(codes(ib03), "ports.down") << "the rate is a leftover, no fault of its own";
    EXPECT_THAT(ib03.findings[0].cause, HasSubstr("Down (physical state Disabled)"));
  }
  {
    const Report ib08 = read("ib08_ibstat_ndr_card_at_rate_200.txt");
    EXPECT_EQ(usable(ib08), 1);
    EXPECT_EQ(codes(ib08), "ports.below_card_rate");
    EXPECT_THAT(ib08.findings[0].cause, HasSubstr("half of the card's rate"));
    EXPECT_THAT(ib08.findings[0].advice, HasSubstr("NDR200"));
    EXPECT_FALSE(ib08.has_errors());
  }
  {
    const Report ib10 = read("ib10_ibv_devinfo_8_hcas_numbers_with_gaps.txt");
    std::string names;
    for (const Port& port : ib10.facts.ports) {
      names += port.device.substr(5) + ",";
      EXPECT_EQ(port.rate_gbps, std::nullopt);
      EXPECT_THAT(port.link_layer, Optional(Eq("InfiniBand")));
    }
    EXPECT_EQ(names, "0,3,4,5,6,9,10,11,");
    EXPECT_EQ(usable(ib10), 8);
    EXPECT_EQ(codes(ib10), "");
  }
}

}  // namespace
}  // namespace trireme::diagnose
