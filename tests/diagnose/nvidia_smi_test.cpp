#include "diagnose/nvidia_smi.h"

#include <gmock/gmock.h>

#include "diagnose/from_samples.h"

namespace trireme::diagnose {
namespace {

using testing::Eq;
using testing::HasSubstr;
using testing::Optional;

// Oracle: by hand, the head of the tool's table and of -q.
TEST(NvidiaSmi, Versions) {
  const Report table = report_of(
      "+-----------------------------------------------------------------------------------------+\n"
      "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n");
  EXPECT_THAT(table.facts.versions.driver, Optional(Eq("550.54.15")));
  EXPECT_THAT(table.facts.versions.cuda, Optional(Eq("12.4")));
  EXPECT_EQ(codes(table), "");
  const Report query = report_of(
      "Driver Version                            : 535.161.08\nCUDA Version                              : 12.2\n");
  EXPECT_THAT(query.facts.versions.driver, Optional(Eq("535.161.08")));
  EXPECT_THAT(query.facts.versions.cuda, Optional(Eq("12.2")));
  EXPECT_EQ(codes(report_of("| NVIDIA-SMI 535.54.03   Driver Version: 550.54.15   CUDA Version: ERR!  |\n")),
            "gpu.unreadable driver.mismatch");
}

// Oracle: by hand: the sentences of the tool, none of which says that there are zero GPUs.
TEST(NvidiaSmi, Refusals) {
  const auto code = [](const char* text) { return codes(report_of(text)); };
  EXPECT_EQ(code("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
                 "latest NVIDIA driver is installed and running.\n"),
            "driver.not_loaded");
  EXPECT_EQ(code("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54\n"),
            "driver.mismatch");
  EXPECT_EQ(code("Failed to initialize NVML: Unknown Error\n"), "driver.no_access");
  EXPECT_EQ(code("No devices were found\n"), "gpu.none");
  EXPECT_EQ(code("bash: nvidia-smi: command not found\n"), "nvidia_smi.missing");
  const Report lost = report_of(
      "Unable to determine the device handle for GPU0000:9B:00.0: GPU is lost.  Reboot the system to recover this "
      "GPU\n");
  EXPECT_EQ(codes(lost), "gpu.lost");
  EXPECT_THAT(lost.findings[0].cause, HasSubstr("0000:9B:00.0"));
  const Report flags = report_of("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
  EXPECT_EQ(codes(flags), "nvidia_smi.flags");
  EXPECT_FALSE(flags.facts.topology) << "no zero GPUs";
}

// Oracle: by hand, in the form of nvidia-smi -q.
TEST(NvidiaSmi, Details) {
  const std::string head =
      "==============NVSMI LOG==============\n\nDriver Version                            : 550.54.15\nCUDA Version    "
      "                          : 12.4\n\n"
      "Attached GPUs                             : 1\nGPU 00000000:07:00.0\n    Product Name                          "
      ": NVIDIA H100\n";
  const auto with = [&](const char* text) { return codes(report_of(head + text)); };
  EXPECT_EQ(with("    GPU Link Info\n        PCIe Generation\n            Max                       : 5\n            "
                 "Current                   : 1\n"
                 "        Link Width\n            Max                       : 16x\n            Current                 "
                 "  : 16x\n"),
            "")
      << "a GPU at rest lowers its PCIe generation";
  EXPECT_EQ(with("        Link Width\n            Max                       : 16x\n            Current                 "
                 "  : 8x\n"),
            "gpu.pcie_width");
  EXPECT_EQ(with("    Remapped Rows\n        Pending                           : Yes\n        Remapping Failure "
                 "Occurred        : No\n"),
            "gpu.row_remap_pending");
  EXPECT_EQ(with("    Clocks Event Reasons\n        HW Slowdown                       : Active\n"), "gpu.slowed");
  EXPECT_EQ(with("    Fabric\n        State                             : In Progress\n"), "gpu.fabric");
  EXPECT_EQ(with("    Fabric\n        State                             : Completed\n"), "");
  EXPECT_EQ(with("    ECC Errors\n        Volatile\n            DRAM Uncorrectable            : 2\n        Aggregate\n "
                 "           DRAM Uncorrectable            : 2\n"),
            "gpu.ecc");
  EXPECT_EQ(with("    ECC Errors\n        Volatile\n            DRAM Uncorrectable            : 0\n        Aggregate\n "
                 "           DRAM Uncorrectable            : 2\n"),
            "");
}

// Oracle: by hand: the third GPU has one link less.
TEST(NvidiaSmi, NvlinkStatus) {
  const std::string two =
      "GPU 0: NVIDIA A100 (UUID: GPU-0)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\nGPU 1: NVIDIA A100 (UUID: GPU-1)\n\t "
      "Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n";
  EXPECT_EQ(codes(report_of(two)), "");
  const Report report =
      report_of(two + "GPU 2: NVIDIA A100 (UUID: GPU-2)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n");
  EXPECT_EQ(codes(report), "nvlink.down");
  EXPECT_THAT(report.findings[0].cause, HasSubstr("GPU 2 has 1 NVLinks up, other GPUs have 2"));
  EXPECT_EQ(report.findings[0].evidence.at(0).line, 9);
}

// Oracle: the answer that the collected reports ask for: say that the flags were refused, do not report zero GPUs.
TEST(NvidiaSmi, Samples) {
  TRIREME_NEEDS_SAMPLES(samples);
  const Report t22 = read_all({samples + "/topo/t22_not_a_matrix_wrong_flag.txt"});
  EXPECT_EQ(codes(t22), "nvidia_smi.flags");
  EXPECT_FALSE(t22.facts.topology);
  EXPECT_THAT(t22.findings[0].cause, HasSubstr("refused its flags"));
}

}  // namespace
}  // namespace trireme::diagnose
