#include "diagnose/kernel_log.h"

#include <gmock/gmock.h>

#include "diagnose/from_samples.h"
#include "diagnose/xid.h"

namespace trireme::diagnose {
namespace {

using testing::HasSubstr;

struct Case {
  const char* line;
  const char* code;
  const char* cause;
};

class KernelLines : public testing::TestWithParam<Case> {};

// Oracle: by hand: one line of a kernel each, in the styles of dmesg, dmesg -T, syslog and journalctl, and the part of the cause that matters.
TEST_P(KernelLines, AreUnderstood) {
  const Report report = report_of(std::string("[    0.000000] Linux version 6.8\n") + GetParam().line + "\n");
  ASSERT_EQ(codes(report), GetParam().code);
  EXPECT_THAT(report.findings[0].cause, HasSubstr(GetParam().cause));
  EXPECT_EQ(report.findings[0].evidence.at(0).line, 2);
  EXPECT_FALSE(report.findings[0].advice.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, KernelLines,
    testing::Values(
        Case{"[  966.503025] NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000", "xid.31",
             "GPU 0000:01:00"},
        Case{
            "kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
            "xid.149", "an NVLink error (network) (Xid 149, by the Xid 45 that followed)"},
        Case{"NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", "xid.145",
             "not fatal (Xid 145)"},
        Case{"               NVRM: fallen off the bus and is not responding to commands.", "gpu.off_the_bus",
             "fallen off the PCIe bus"},
        Case{"Nov 22 18:29:55 host kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has "
             "fallen off the bus.",
             "xid.79", "fallen off the PCIe bus"},
        Case{"kern  :warn  : 2025-01-21T04:41:44,285060+00:00 NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: "
             "New row marked for remapping",
             "xid.63", "remapping"},
        Case{"[1.0] NVRM: Xid (PCI:0000:10:00): 9999, x", "xid.9999", "not in our table"},
        Case{"[1.0] nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "sxid.20034",
             "fatal error 20034"},
        Case{"[1.0] python[123]: segfault at 0 ip 00007f sp 00007f error 4 in libtorch_cpu.so[7f+1000]",
             "process.crash", "python crashed: segmentation fault inside libtorch_cpu.so"},
        Case{"[1.0] traps: train[77] trap invalid opcode ip:55 sp:7f error:0 in train[55+1000]", "process.crash",
             "train crashed: illegal instruction inside train"},
        Case{"[1.0] Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:67108864kB, file-rss:0kB, "
             "shmem-rss:0kB, UID:0",
             "oom.killed", "python (pid 4242): the host's memory was full, it had 64 GiB"},
        Case{"[1.0] Memory cgroup out of memory: Killed process 9 (pt_data_worker) total-vm:1kB, anon-rss:1kB",
             "oom.killed", "pt_data_worker (pid 9): its memory cgroup was full"},
        Case{"[1.0] pcieport 0000:5d:02.0: AER: Corrected error received: 0000:5e:00.0", "pcie.corrected",
             "0000:5d:02.0"},
        Case{"[1.0] nvme 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
             "pcie.uncorrected", "0000:01:00.0"},
        Case{"[1.0] INFO: task python:1234 blocked for more than 120 seconds.", "process.hung_in_kernel",
             "python waits"},
        Case{"[1.0] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:123]", "cpu.lockup", "CPU"},
        Case{"[1.0] nfs: server filer1 not responding, still trying", "nfs.not_responding", "filer1"},
        Case{
            "[1.0] NVRM: API mismatch: the client has the version 535.1, but this kernel module has the version 550.2.",
            "driver.mismatch", "two versions"},
        Case{"[1.0] mlx5_core 0000:3b:00.0: health_care:000: device's health compromised - reached miss count",
             "nic.firmware", "firmware"},
        Case{"[1.0] mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400", "cpu.hardware_error",
             "hardware error"},
        Case{"[1.0] EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "memory.uncorrected", "cannot correct"}));

// Oracle: by hand: the same fault twice is one finding with a count; lines that are no fault.
TEST(KernelLog, CountsAndPassesOver) {
  const std::string line = "[1.0] NVRM: Xid (PCI:0000:9b:00): 48, pid=1, x\n";
  const Report report = report_of(
      line + "[2.0] eth0: link becomes ready\n[2.5] mlx5_core 0000:3b:00.0: firmware version: 28.39\n" + line);
  EXPECT_EQ(codes(report), "xid.48");
  EXPECT_THAT(report.findings[0].cause, HasSubstr(", 2 times"));
  EXPECT_EQ(report.findings[0].evidence.at(1).line, 4);
}

// Oracle: the table is sorted, or its search would miss rows.
TEST(KernelLog, EveryXidIsFound) {
  for (const int number : {8, 13, 31, 43, 48, 63, 64, 74, 79, 94, 95, 119, 120, 136, 154}) {
    ASSERT_NE(find_xid(number), nullptr) << number;
    EXPECT_EQ(find_xid(number)->number, number);
  }
  EXPECT_EQ(find_xid(0), nullptr);
  EXPECT_EQ(find_xid(100000), nullptr);
}

// Oracle: the answer that collected reports ask for: Xid 119 on 0000:9b:00 three times (GSP), a crash inside libnccl, NVSwitch error 12028, 12
// links of 25 GB/s.
TEST(KernelLog, Samples) {
  TRIREME_NEEDS_SAMPLES(samples);
  const auto read = [&](const char* file) { return read_all({samples + "/dmesg/" + file}); };
  const Report d01 = read("d01_xid_119_gsp.log");
  EXPECT_EQ(codes(d01), "xid.119");
  EXPECT_THAT(d01.findings[0].cause, HasSubstr("GPU 0000:9b:00"));
  EXPECT_THAT(d01.findings[0].cause, HasSubstr("GSP"));
  EXPECT_THAT(d01.findings[0].cause, HasSubstr("3 times"));
  EXPECT_EQ(d01.findings[0].severity, Severity::kError);
  const Report d02 = read("d02_nccl_segfault.log");
  EXPECT_EQ(codes(d02), "process.crash");
  EXPECT_THAT(d02.findings[0].cause, HasSubstr("inside libnccl.so.2"));
  const Report d04 = read("d04_nvswitch_nonfatal.log");
  EXPECT_EQ(codes(d04), "sxid.12028");
  EXPECT_THAT(d04.findings[0].cause, HasSubstr("00000000:86:00.0"));
  EXPECT_EQ(d04.findings[0].severity, Severity::kWarning);
  const Report d05 = read("d05_nvidia_smi_nvlink_status_a100.txt");
  EXPECT_EQ(codes(d05), "");
  EXPECT_THAT(d05.checks.at(0).text, HasSubstr("2 GPUs, 12 links x 25 GB/s each"));
}

}  // namespace
}  // namespace trireme::diagnose
