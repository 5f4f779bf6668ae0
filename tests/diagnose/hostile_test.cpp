// Files that somebody made to hurt a reader: endless many of everything that a reader keeps.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "diagnose/from_samples.h"

namespace trireme::diagnose {
namespace {

// The sanitizers' shadow is part of the process's peak: up to twice (address) and four times (thread) the memory itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long kShadow = 4;
#else
constexpr long kShadow = 1;
#endif

/// The growth of this process's peak while it reads; KiB.
long peak_growth(const std::string& text) {
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const Report report = report_of(text);
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(to_json(report).size(), size_t{64} << 20);
  return after.ru_maxrss - before.ru_maxrss;
}

// Oracle: the bounds that reader.h promises: 6 MB of distinct names and devices in each kind of file add less than 160 MiB.
TEST(Hostile, ReadersKeepBoundedMemory) {
  constexpr int kLines = 30'000;
  std::string nccl;
  std::string kernel;
  std::string smi;
  std::string ports;
  for (int i = 0; i < kLines; ++i) {
    const std::string number = std::to_string(i);
    nccl += "h" + number + ":" + number + ":1 [0] NCCL INFO NET/Socket : Using [0]e" + number + ":1<0> [1]f" + number +
            ":1<0>\n";
    kernel += "[1.0] NVRM: Xid (PCI:" + number + "): " + number + ", pid=1, name=x, " + std::string(100, 'x') + "\n";
    smi += "GPU " + number +
           ": NVIDIA (UUID: GPU-0)\n\t Link 0: <inactive>\nUnable to determine the device handle for GPU" + number +
           ": lost\n";
    ports += "hca_id: mlx5_" + number + "\n port: 1\n state: PORT_DOWN (1)\n";
  }
  std::string tables;
  std::string header;
  for (int i = 0; i < 300; ++i) header += " GPU" + std::to_string(i);
  for (int table = 0; table < 40; ++table) {
    tables += header + "\n";
    for (int i = 0; i < 3; ++i) {
      tables += "GPU" + std::to_string(i);
      for (int j = 0; j < 300; ++j) tables += " NV12";
      tables += "\n";
    }
  }
  for (const std::string* text : {&nccl, &kernel, &smi, &ports, &tables})
    EXPECT_LT(peak_growth(*text), kShadow * (160L << 10)) << text->substr(0, 80);
}

}  // namespace
}  // namespace trireme::diagnose
