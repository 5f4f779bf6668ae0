#include "plan/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/str.h"
#include "plan/numbers.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

using ::testing::HasSubstr;

const MachineCatalog& catalog() {
  static const MachineCatalog machines = [] {
    MachineCatalog all = load_machines();
    all.add(
        R"({"schema": 1, "clusters": [{"name": "testbed", "source": "here", "devices_per_host": 4, "hosts": 3, "device": "A100-40",
      "host_network": {"value": 5e10, "source": "s"}, "launch_seconds": {"value": 2e-5, "source": "s"},
      "link_latency": {"value": 4e-5, "source": "s"}, "network_efficiency": {"value": 0.7, "source": "s"}, "calibrated": true}]})",
        "extra.json");
    return all;
  }();
  return machines;
}

// Oracle: the form itself; counts by hand, the network from the vendor's usual host.
TEST(ClusterSpec, ReadsHostsDevicesAndType) {
  const ClusterSpec spec = read_cluster_spec("16x8xH100", catalog());
  EXPECT_TRUE(spec.uniform());
  EXPECT_EQ(spec.cluster.hosts, 16);
  EXPECT_EQ(spec.cluster.devices_per_host, 8);
  EXPECT_EQ(spec.num_devices(), 128);
  EXPECT_EQ(spec.cluster.device, "H100");
  EXPECT_DOUBLE_EQ(spec.cluster.host_network.value, 8 * 50e9);
  EXPECT_FALSE(spec.cluster.calibrated);
  EXPECT_THAT(spec.cluster.launch_seconds.source, HasSubstr("not calibrated"));
}

// Oracle: names of devices that hold an 'x' themselves, other spellings, and shorter forms.
TEST(ClusterSpec, ReadsEveryFormOfCounts) {
  for (const auto& [text, hosts, devices, name] :
       {std::tuple{"2x8xMI250X", 2, 8, "MI250X"}, std::tuple{"8xRTX-3090", 1, 8, "RTX-3090"},
        std::tuple{"H100", 1, 1, "H100"}, std::tuple{"4X8Xa100-80gb", 4, 8, "A100-80"},
        std::tuple{"18x4xGB200", 18, 4, "GB200"}, std::tuple{"100x1xRTX4090", 100, 1, "RTX-4090"}}) {
    const ClusterSpec spec = read_cluster_spec(text, catalog());
    EXPECT_EQ(spec.cluster.hosts, hosts) << text;
    EXPECT_EQ(spec.cluster.devices_per_host, devices) << text;
    EXPECT_EQ(spec.device().name, name) << text;
  }
}

// Oracle: a cluster of the catalog keeps its constants, whatever number of its hosts is asked for.
TEST(ClusterSpec, TakesTheConstantsOfAKnownCluster) {
  EXPECT_EQ(read_cluster_spec("testbed", catalog()).num_devices(), 12);
  const ClusterSpec spec = read_cluster_spec("20xtestbed", catalog());
  EXPECT_EQ(spec.num_devices(), 80);
  EXPECT_EQ(spec.cluster.network_efficiency.value, 0.7);
  EXPECT_TRUE(spec.cluster.calibrated);
  EXPECT_EQ(read_cluster_spec("5x4xtestbed", catalog()).num_devices(), 20);
}

std::string message_of(const std::string& text) {
  try {
    (void)read_cluster_spec(text, catalog());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), error.kind() == ErrorKind::kIo ? ErrorKind::kIo : ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

// Oracle: one message per fault: what is wrong, the nearest name, the form that is required.
TEST(ClusterSpec, SaysWhatIsWrongWithASpecification) {
  EXPECT_THAT(message_of("16x8xH1OO"),
              HasSubstr("'16x8xH1OO' has the type 'H1OO', which is no known device or cluster; did you mean 'H100'?"));
  EXPECT_THAT(message_of("16x8"), HasSubstr("names no device after its counts; HOSTSxDEVICESxTYPE (16x8xH100)"));
  EXPECT_THAT(message_of("16x8x"), HasSubstr("names no device"));
  EXPECT_THAT(message_of(""), HasSubstr("is empty"));
  EXPECT_THAT(message_of("0x8xH100"), HasSubstr("has a count of 0; from 1"));
  EXPECT_THAT(message_of("99999999999999999999x8xH100"), HasSubstr("has a count of 99999999999999999999"));
  EXPECT_THAT(message_of("9000000x8xH100"), HasSubstr("has 72000000 devices; at most 10000000"));
  EXPECT_THAT(message_of("2x8xtestbed"), HasSubstr("gives 8 devices a host, but the hosts of 'testbed' have 4"));
  EXPECT_THAT(message_of("nowhere.json"), HasSubstr("cannot read 'nowhere.json'"));
}

// Oracle: by hand: two groups of unlike hosts, one with less memory and slower NICs.
TEST(ClusterFile, ReadsUnequalHosts) {
  const ClusterSpec spec = parse_cluster_file(R"({"schema": 1, "name": "mixed", "price_per_device_hour": 2.5, "hosts": [
      {"count": 3, "devices": 8, "device": "H100"},
      {"count": 1, "devices": 4, "device": "A100-80GB", "memory_bytes": 4e10, "nics": 2, "nic_bandwidth": 12.5e9}]})",
                                              "mixed.json", catalog());
  EXPECT_FALSE(spec.uniform());
  EXPECT_EQ(spec.num_devices(), 28);
  EXPECT_EQ(spec.cluster.hosts, 4);
  EXPECT_EQ(spec.cluster.name, "mixed");
  EXPECT_EQ(spec.cluster.price_per_device_hour, 2.5);
  EXPECT_EQ(spec.groups[1].device.name, "A100-80");
  EXPECT_EQ(spec.groups[1].device.memory_bytes.value, 4e10);
  EXPECT_EQ(spec.groups[1].device.memory_bytes.source, "mixed.json");
  EXPECT_EQ(spec.groups[1].host_network.value, 25e9);
  EXPECT_EQ(spec.groups[0].host_network.value, 400e9);
}

// Oracle: one message per fault, with file and key.
TEST(ClusterFile, NamesFileAndKeyOfAFault) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      (void)parse_cluster_file(text, "c.json", catalog());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(R"({"schema": 1, "hosts": []})"), HasSubstr("c.json: key 'hosts' is empty or missing"));
  EXPECT_THAT(message(R"({"schema": 1, "hosts": [{"devices": 8, "device": "H1000"}]})"),
              HasSubstr("key 'hosts.0.device' is \"H1000\", which no device is called; did you mean 'H100'?"));
  EXPECT_THAT(message(R"({"schema": 1, "hosts": [{"devices": 8, "device": "H100", "nics": 8}]})"),
              HasSubstr("both or none are required"));
  EXPECT_THAT(message(R"({"schema": 1, "hosts": [{"devices": 8, "device": "H100", "memory_bytes": -1}]})"),
              HasSubstr("key 'hosts.0.memory_bytes' is -1; more than 0"));
  for (const char* key : {"memory_bytes", "link_bandwidth"}) {
    EXPECT_THAT(message(str(R"({"schema": 1, "hosts": [{"devices": 8, "device": "H100", ")", key, R"(": 0}]})")),
                HasSubstr("is 0; more than 0"));
  }
  EXPECT_THAT(message(R"({"schema": 1, "hosts": [{"devices": 8, "device": "H100", "nics": 8, "nic_bandwidth": 0}]})"),
              HasSubstr("nic_bandwidth' is 0; more than 0"));
  // Bytes a second, not GB/s.
  EXPECT_THAT(message(R"({"schema": 1, "hosts": [{"devices": 8, "device": "H100", "nics": 8, "nic_bandwidth": 25}]})"),
              HasSubstr("nic_bandwidth' is 25; it is in bytes (a second), 1e6 at least"));
  EXPECT_THAT(message(R"({"schema": 1, "network_efficiency": 1.5, "hosts": [{"devices": 8, "device": "H100"}]})"),
              HasSubstr("key 'network_efficiency' is 1.5; at most 1"));
  EXPECT_THAT(message(R"({"schema": 1, "price_per_device_hour": -2, "hosts": [{"devices": 8, "device": "H100"}]})"),
              HasSubstr("key 'price_per_device_hour' is -2; 0 or more"));
  EXPECT_THAT(message(R"({"schema": 1, "like": "selenium", "hosts": [{"devices": 8, "device": "H100"}]})"),
              HasSubstr("no cluster is called 'selenium'"));
  EXPECT_THAT(message(R"({"schema": 1, "host": 3})"), HasSubstr("key 'host' is not known here; did you mean 'hosts'?"));
}

// Oracle: volumes by hand. On one host of 8 the all-reduce of a tensor-parallel group stays on its links when all 8 are one domain; in
// domains of 2 or 4 it also crosses the host's network, and every smaller domain is slower.
TEST(ClusterFile, DomainsSmallerThanAHostCount) {
  const auto numbers = [](int domain) {
    const std::string said = domain > 0 ? str(R"(, "devices_per_domain": )", domain) : std::string();
    const ClusterSpec spec = parse_cluster_file(
        str(R"({"schema": 1, "hosts": [{"devices": 8, "device": "A100-80")", said, "}]}"), "c.json", catalog());
    return numbers_of({spec.cluster, spec.device(), catalog().software_profile("default")}, Training{});
  };
  EXPECT_EQ(numbers(0).domain, 8);
  EXPECT_EQ(numbers(2).domain, 2);
  EXPECT_EQ(numbers(16).domain, 16);
  ModelDesc model;
  model.hidden = 4096;
  TransformerLayer layer;
  layer.attention.heads = layer.attention.kv_heads = 32;
  layer.attention.head_dim = layer.attention.value_dim = 128;
  layer.feed_forward = FeedForward{16384, false, false};
  model.layers = {{layer, 4, 0}};
  TrainingNumbers training;
  training.global_batch = 8;
  training.sequence = 2048;
  Plan plan;
  plan.tp = 8;
  double slower = 0;
  for (const int domain : {8, 4, 2, 1}) {
    const MachineNumbers hw = numbers(domain);
    const double seconds = step_time(numbers_of(model), hw, training, plan).tensor_parallel.value;
    EXPECT_GT(seconds, slower) << domain;
    slower = seconds;
    if (domain == 8) continue;
    const double bytes = 2048.0 * 4096 * 2, groups = 8.0 / domain;
    const double across = 2 * (4e-5 * std::log2(groups) + (groups - 1) / groups * bytes * groups / hw.network.value);
    EXPECT_NEAR(seconds, 8 * 4 * 2 * 2 * across, 1e-6 * seconds) << domain;  // micro-steps, layers, passes, collectives
  }
}

}  // namespace
}  // namespace trireme::plan
