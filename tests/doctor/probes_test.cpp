#include <gmock/gmock.h>

#include <array>
#include <csignal>

#include "doctor/cgroup.h"
#include "doctor/hosts.h"
#include "doctor/interfaces.h"
#include "doctor/probes.h"
#include "doctor/tool.h"
#include "fake_tree.h"
#include "trireme/base/error.h"

namespace trireme::doctor {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

std::string codes(const Report& report) {
  std::string text;
  for (const Finding& finding : report.findings) text += (text.empty() ? "" : " ") + finding.code;
  return text;
}

// Oracle: by hand: one that is well, one that throws, one that crashes, one that never ends; each has its row and the rest is untouched.
TEST(Probes, FailAlone) {
  const auto start = std::chrono::steady_clock::now();
  const Report report = run_probes({
      {"good", milliseconds(60'000), [](Report& out) { add_row(out, "good", Check::State::kOk, "fine"); }},
      {"throws", milliseconds(60'000), [](Report&) { throw Error(ErrorKind::kIo, "no luck"); }},
      {"crashes", milliseconds(60'000), [](Report&) { (void)raise(SIGKILL); }},
      {"hangs", milliseconds(50), [](Report&) { pause(); }},
      {"last", milliseconds(60'000), [](Report& out) { add_row(out, "last", Check::State::kOk, "fine"); }},
  });
  ASSERT_EQ(report.checks.size(), 5U);
  EXPECT_EQ(report.checks[0].text, "fine");
  EXPECT_EQ(report.checks[1].text, "no luck");
  EXPECT_THAT(report.checks[2].text, HasSubstr("died by signal 9 (SIGKILL)"));
  EXPECT_THAT(report.checks[3].text, HasSubstr("no answer within 0.05 s"));
  for (int i = 1; i < 4; ++i) EXPECT_EQ(report.checks[static_cast<size_t>(i)].state, Check::State::kUnknown);
  EXPECT_EQ(report.checks[4].text, "fine");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << "nothing waited for the long limits";
}

// Oracle: what the shell was told to do.
TEST(Tool, SaysHowAProgramEnded) {
  EXPECT_TRUE(run_tool({"no-such-program-here"}, milliseconds(1000)).missing);
  const ToolOutput failed = run_tool({"sh", "-c", "echo out; echo err >&2; exit 7"}, milliseconds(60'000));
  EXPECT_EQ(failed.exit_code, 7);
  EXPECT_EQ(failed.out, "out\n");
  EXPECT_EQ(failed.err, "err\n");
  EXPECT_EQ(failed.first_line(), "out");
  const ToolOutput late = run_tool({"sh", "-c", "echo first; sleep 1000 & wait"}, milliseconds(200));
  EXPECT_TRUE(late.timed_out);
  EXPECT_EQ(late.first_line(), "first");
  // Its streams are closed and it lives on.
  EXPECT_TRUE(run_tool({"sh", "-c", "exec >&- 2>&-; sleep 1000"}, milliseconds(200)).timed_out);
  EXPECT_EQ(run_tool({"sh", "-c", "cat"}, milliseconds(60'000)).exit_code, 0) << "standard input is empty";
}

// Oracle: by hand, a tree as /sys/class/infiniband.
TEST(Ports, FromSysfs) {
  FakeTree tree;
  tree.ib_port("mlx5_0", "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)", "0x1a", "InfiniBand");
  tree.ib_port("mlx5_3", "1: DOWN", "3: Disabled", "40 Gb/sec (4X QDR)", "0x0", "Ethernet");
  tree.file("sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "12");
  tree.file("dev/infiniband/uverbs0", "");
  Report report;
  probe_ports(tree.place(), report);
  ASSERT_EQ(report.facts.ports.size(), 2U);
  EXPECT_THAT(report.facts.ports[0].usable, Optional(true));
  EXPECT_THAT(report.facts.ports[0].rate_gbps, Optional(400));
  EXPECT_THAT(report.facts.ports[1].usable, Optional(false));
  EXPECT_EQ(codes(report), "ports.errors ports.down");
  EXPECT_FALSE(report.has_errors());
}

// Oracle: by hand: adapters without device files (a container), without a driver, and none at all.
TEST(Ports, TrapsOfContainers) {
  {
    FakeTree tree;
    tree.ib_port("mlx5_0", "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)", "0x1a", "InfiniBand");
    Report report;
    probe_ports(tree.place(), report);
    EXPECT_EQ(codes(report), "ports.no_device_files");
    EXPECT_THAT(report.findings[0].advice, HasSubstr("--device=/dev/infiniband"));
  }
  {
    FakeTree tree;
    tree.pci("0000:17:00.0", "0x15b3", "0x020700");
    Report report;
    probe_ports(tree.place(), report);
    EXPECT_EQ(codes(report), "ports.no_driver");
  }
  Report report;
  probe_ports(FakeTree().place(), report);
  EXPECT_EQ(codes(report), "");
  EXPECT_EQ(report.checks.at(0).state, Check::State::kOk);
}

// Oracle: by hand: the GPU of a CPU (Intel, 0x0300) is no card.
TEST(Gpus, AreCountedOnThePciBus) {
  FakeTree tree;
  tree.pci("0000:01:00.0", "0x10de", "0x030200");
  tree.pci("0000:02:00.0", "0x10de", "0x040300");  // its sound
  tree.pci("0000:03:00.0", "0x8086", "0x030000");
  tree.pci("0000:04:00.0", "0x8086", "0x038000");
  const std::vector<PciDevice> devices = pci_devices(tree.place());
  EXPECT_EQ(count_gpus(devices, kNvidia), 1);
  EXPECT_EQ(count_gpus(devices, kIntel), 1);
  EXPECT_EQ(count_gpus(devices, kAmd), 0);
}

// Oracle: by hand: two GPUs whose IOMMU domain translates, on a machine that is no guest.
TEST(Isolation, NamesTheIommu) {
  FakeTree tree;
  for (const char* address : {"0000:01:00.0", "0000:02:00.0"}) {
    tree.pci(address, "0x10de", "0x030200");
    tree.file(std::string("sys/bus/pci/devices/") + address + "/iommu_group/type", "DMA-FQ");
  }
  tree.file("proc/cpuinfo", "flags : fpu vme");
  Report report;
  probe_isolation(tree.place(), report);
  EXPECT_THAT(codes(report), HasSubstr("iommu.translates"));
  tree.file("proc/cpuinfo", "flags : fpu hypervisor");
  Report guest;
  probe_isolation(tree.place(), guest);
  EXPECT_EQ(codes(guest), "");
  Report none;
  probe_isolation(FakeTree().place(), none);
  EXPECT_THAT(none.checks, IsEmpty());
}

const std::vector<Interface> kInterfaces = {{"lo", {"127.0.0.1", "::1"}, true, true, 0},
                                            {"docker0", {"172.17.0.1"}, true, false, 0},
                                            {"eth0", {"10.0.0.5", "fe80::1"}, true, false, 100'000},
                                            {"eth1", {"10.1.0.5"}, false, false, 0},
                                            {"ibp12s0", {"10.9.0.5"}, true, false, 0}};

// Oracle: the order that NCCL documents for NCCL_SOCKET_IFNAME and its absence.
TEST(Interfaces, NcclsChoice) {
  std::vector<Interface> all = kInterfaces;
  EXPECT_THAT(nccl_interfaces(all, ""), ElementsAre("ibp12s0"));
  EXPECT_THAT(nccl_interfaces(all, "eth"), ElementsAre("eth0")) << "eth1 is down";
  EXPECT_THAT(nccl_interfaces(all, "^docker,lo,ib"), ElementsAre("eth0"));
  EXPECT_THAT(nccl_interfaces(all, "=eth"), IsEmpty());
  EXPECT_THAT(nccl_interfaces(all, "=docker0"), ElementsAre("docker0"));
  all.pop_back();
  EXPECT_THAT(nccl_interfaces(all, ""), ElementsAre("eth0"));
  all.resize(2);
  EXPECT_THAT(nccl_interfaces(all, ""), ElementsAre("docker0"));
  all.resize(1);
  EXPECT_THAT(nccl_interfaces(all, ""), ElementsAre("lo"));
}

// Oracle: Gloo binds to the address of the host's own name.
TEST(Interfaces, GloosChoice) {
  EXPECT_EQ(gloo_interface(kInterfaces, {"10.0.0.5"}, ""), "eth0");
  EXPECT_EQ(gloo_interface(kInterfaces, {"127.0.1.1"}, ""), "lo");
  EXPECT_EQ(gloo_interface(kInterfaces, {"127.0.1.1"}, "eth0,eth1"), "eth0");
  EXPECT_TRUE(is_host_local("docker0") && is_host_local("br-12ab") && !is_host_local("bond0") &&
              !is_host_local("eth0"));
  EXPECT_TRUE(is_loopback_address("127.0.1.1") && is_loopback_address("::1") && !is_loopback_address("10.0.0.1"));
}

// Oracle: by hand: limits of version 2, of which the group above has the lower one; of version 1; of a container that does not see its path.
TEST(Cgroup, Limits) {
  {
    FakeTree tree;
    tree.file("proc/self/cgroup", "0::/job/step");
    tree.file("sys/fs/cgroup/job/step/memory.max", "max");
    tree.file("sys/fs/cgroup/job/memory.max", "1073741824");
    tree.file("sys/fs/cgroup/job/memory.current", "1000");
    tree.file("sys/fs/cgroup/job/step/cpu.max", "150000 100000");
    tree.file("sys/fs/cgroup/job/step/cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 4");
    const CgroupLimits limits = read_cgroup_limits(tree.place());
    EXPECT_THAT(limits.memory_bytes, Optional(1073741824));
    EXPECT_THAT(limits.memory_used_bytes, Optional(1000));
    EXPECT_THAT(limits.cpus, Optional(1.5));
    EXPECT_THAT(limits.throttled, Optional(4));
  }
  {
    FakeTree tree;
    tree.file("proc/self/cgroup", "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/");
    tree.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648");
    tree.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
    tree.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    const CgroupLimits limits = read_cgroup_limits(tree.place());
    EXPECT_THAT(limits.memory_bytes, Optional(2147483648));
    EXPECT_FALSE(limits.cpus);
  }
  EXPECT_FALSE(read_cgroup_limits(FakeTree().place()).memory_bytes);
}

// Oracle: by hand.
TEST(Memory, SaysWhenLittleIsLeft) {
  FakeTree tree;
  tree.file("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    1048576 kB");
  Report report;
  probe_memory(tree.place(), report);
  EXPECT_EQ(codes(report), "memory.little");
  EXPECT_THAT(report.checks.at(0).text, HasSubstr("16 GiB, 1 GiB available"));
}

// Oracle: by hand: the CUDA of LibTorch against the driver's.
TEST(Versions, MustFit) {
  const auto judge = [](const char* torch, const char* cuda, bool gpu) {
    FakeTree tree;
    if (gpu) tree.pci("0000:01:00.0", "0x10de", "0x030200");
    Report report;
    report.facts.versions.torch = torch;
    if (*cuda != '\0') report.facts.versions.cuda = cuda;
    judge_versions(tree.place(), report);
    return report;
  };
  EXPECT_EQ(codes(judge("2.13.0+cu126", "12.6", true)), "");
  EXPECT_EQ(codes(judge("2.13.0+cu130", "12.4", true)), "driver.too_old");
  EXPECT_TRUE(judge("2.13.0+cu130", "12.4", true).has_errors());
  EXPECT_FALSE(judge("2.13.0+cu128", "12.4", true).has_errors()) << "minor versions are compatible";
  EXPECT_EQ(codes(judge("2.13.0+cpu", "12.4", true)), "libtorch.cpu_only");
  EXPECT_EQ(codes(judge("2.13.0+cpu", "", false)), "");
  EXPECT_EQ(codes(judge("2.13.0", "12.4", true)), "") << "not told for what it was built";
}

// Oracle: by hand: a program that answers as trireme-train does, one that cannot start, and one of another release than it loads.
TEST(LibTorch, IsAskedOfTrain) {
  FakeTree tree;
  const auto train = [&](const char* script) {
    tree.file("train", script);
    std::filesystem::permissions(tree.path("train"), std::filesystem::perms::owner_all);
    Report report;
    probe_libtorch(tree.path("train"), report);
    return report;
  };
  const Report good = train("#!/bin/sh\necho '{\"torch_built\": \"2.13.0\", \"torch_loaded\": \"2.13.0\"}'");
  EXPECT_EQ(good.checks.at(0).text, "2.13.0");
  EXPECT_THAT(good.facts.versions.torch, Optional(std::string("2.13.0")));
  EXPECT_EQ(codes(train("#!/bin/sh\necho '{\"torch_built\": \"2.13.0\", \"torch_loaded\": \"2.12.1\"}'")),
            "libtorch.mismatch");
  const Report broken = train("#!/bin/sh\necho 'error while loading shared libraries: libtorch.so' >&2; exit 127");
  EXPECT_EQ(codes(broken), "libtorch.broken");
  EXPECT_THAT(broken.checks.at(0).text, HasSubstr("libtorch.so"));
  Report none;
  probe_libtorch("", none);
  EXPECT_EQ(codes(none), "");
}

// Oracle: by hand; a name that ssh would take for an option is refused with its line.
TEST(Hostfile, Formats) {
  FakeTree tree;
  tree.file("hosts", "# two racks\nnode1 slots=8\nnode2:4\n\nuser@node3\tmax_slots=2 # old\nnode1\nfe80::1");
  EXPECT_THAT(read_hostfile(tree.path("hosts")), ElementsAre("node1", "node2", "user@node3", "fe80::1"));
  for (const char* bad : {"-oProxyCommand=touch", "node1\n$(reboot)", "#only\n"}) {
    tree.file("hosts", bad);
    EXPECT_THROW((void)read_hostfile(tree.path("hosts")), Error) << bad;
  }
  tree.file("hosts", "node1\n-oProxyCommand=x");
  try {
    (void)read_hostfile(tree.path("hosts"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("hosts:2: '-oProxyCommand=x' is no host name"));
  }
  EXPECT_THROW((void)read_hostfile(tree.path("none")), Error);
}

}  // namespace
}  // namespace trireme::doctor
