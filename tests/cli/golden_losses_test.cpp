// Oracle: tests/golden/train/resnet_2_ranks.json, the losses of the first 20 steps of the main job as they were when the list was last written
// (tools/regen_golden.sh). TrainParity takes model, data order, augmentation and pixel statistics from the library itself; this list also notices
// when those change, and when the recipe's defaults do.
//
// Bitwise where the same machine code runs: same LibTorch, same instruction set, same kind of CPU (oneDNN chooses its kernels and their blocks by
// it). Elsewhere sums are formed in another order, with k terms at most, k = 128 images of a rank * 28 * 28 pixels in the gradient of the first
// convolution. Their roundings are independent, so they add up to sqrt(k) * 2^-24 of a value, and s steps to s times that: 3.8e-4 at step 20.
// (Seen at most, with AVX2, SSE4.1 and LibTorch's portable kernels in place of AVX-512: 2.2e-6.)
#include <ATen/Version.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/temp_dir.h"

namespace trireme {
namespace {

constexpr int kSteps = 20;
constexpr const char* kData = "/usr/share/datasets/fashion-mnist";
const std::string kGolden = std::string(TRIREME_SOURCE_DIR) + "/tests/golden/train/resnet_2_ranks.json";
const std::string kFlags =
    "--recipe resnet --ranks 2 --seed 1 --max-steps " + std::to_string(kSteps) + " --set log.every=1";

// "GenuineIntel 6 106 6": vendor, family, model, stepping.
std::string cpu_kind() {
  std::ifstream in("/proc/cpuinfo");
  std::string kind;
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const std::string key = line.substr(0, line.find_first_of("\t:"));
    if (key != "vendor_id" && key != "cpu family" && key != "model" && key != "stepping") continue;
    kind += (kind.empty() ? "" : " ") + line.substr(line.find(": ") + 2);
  }
  return kind;
}

// What decides which machine code runs.
nlohmann::ordered_json machine() {
  const char* onednn = std::getenv("ONEDNN_MAX_CPU_ISA");
  return {{"torch", TORCH_VERSION},
          {"cpu_capability", at::get_cpu_capability()},
          {"onednn_max_cpu_isa", onednn != nullptr ? onednn : ""},
          {"cpu", cpu_kind()}};
}

std::vector<double> losses_of_a_run() {
  const test::TempDir folder;
  const std::string command = std::string(TRIREME_BIN_DIR) + "/trireme-train " + kFlags + " --data " + kData +
                              " --run-dir " + folder / "run" + " >" + folder / "out" + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << std::ifstream(folder / "out").rdbuf();  // NOLINT: the command is ours
  std::vector<double> losses;
  std::ifstream metrics(folder / "run/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("train/loss")) losses.push_back(row["train/loss"].get<double>());
  }
  return losses;
}

TEST(GoldenLosses, OfTheMainJobAreWhatTheyWere) {
  if (!std::filesystem::exists(std::string(kData) + "/train-images-idx3-ubyte.gz")) {
    GTEST_SKIP() << "there is no Fashion-MNIST in " << kData << "; install dataset-fashion-mnist";
  }
  const std::vector<double> got = losses_of_a_run();
  ASSERT_EQ(got.size(), static_cast<size_t>(kSteps));
  if (std::getenv("TRIREME_REGEN_GOLDEN") != nullptr) {
    const nlohmann::ordered_json written = {
        {"command", "trireme train " + kFlags}, {"machine", machine()}, {"train/loss", got}};
    std::filesystem::create_directories(std::filesystem::path(kGolden).parent_path());
    std::ofstream out(kGolden);
    out << written.dump(1) << '\n';
    ASSERT_TRUE(out.flush());
    return;
  }
  const auto golden = nlohmann::ordered_json::parse(std::ifstream(kGolden));
  ASSERT_EQ(golden["command"], "trireme train " + kFlags);
  const auto want = golden["train/loss"].get<std::vector<double>>();
  ASSERT_EQ(want.size(), got.size());
  const bool same_code = golden["machine"] == machine();
  std::printf("compared %s: this is %s\n", same_code ? "bit for bit" : "within the bound", machine().dump().c_str());
  for (int step = 1; step <= kSteps; ++step) {
    const auto i = static_cast<size_t>(step - 1);
    const double bound = same_code ? 0 : want[i] * step * std::sqrt(128.0 * 28 * 28) * std::ldexp(1.0, -24);
    EXPECT_LE(std::abs(got[i] - want[i]), bound) << "step " << step << ": " << got[i] << ", and it was " << want[i];
  }
}

}  // namespace
}  // namespace trireme
