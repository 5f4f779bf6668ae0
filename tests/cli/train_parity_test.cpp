// Oracle: one process that runs the ranks' batches in turn, each with BatchNorm statistics of its own, adds the gradients in rank order
// and halves the sum. Every loss of the first epoch of `trireme train`, main recipe, augmentation on, must be bitwise equal to it.
#include <ATen/Version.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/version.h>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/torch/torch_compat.h"
#include "models/classifier.h"
#include "support/temp_dir.h"
#include "trireme/data/image_batch.h"
#include "trireme/data/random.h"
#include "trireme/data/sampler.h"

namespace trireme {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kGlobalBatch = 64;
constexpr int64_t kImages = 301;  // five steps, the last of 45 images: 23 and 22
constexpr uint64_t kSeed = 7;

void write_idx(const std::string& path, const std::vector<uint32_t>& shape, const std::vector<uint8_t>& values) {
  std::ofstream out(path, std::ios::binary);
  const char magic[4] = {0, 0, 8, static_cast<char>(shape.size())};
  out.write(magic, 4);
  for (const uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8)
      out.put(static_cast<char>((size >> static_cast<unsigned>(shift)) & 0xFFU));
  }
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size()));
}

// Noise with a bright row that tells the class, so that the loss falls.
void write_images(const std::string& folder, const std::string& stem, int64_t count) {
  data::RandomStream random(kSeed, data::RandomRole::kTest, static_cast<uint32_t>(count), 0);
  std::vector<uint8_t> pixels(static_cast<size_t>(count * 784));
  std::vector<uint8_t> labels(static_cast<size_t>(count));
  for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random.below(64));
  for (int64_t i = 0; i < count; ++i) {
    labels[static_cast<size_t>(i)] = static_cast<uint8_t>(i % 10);
    const auto row = pixels.begin() + i * 784 + (2 + 2 * (i % 10)) * 28;
    std::fill(row, row + 28, uint8_t{255});
  }
  const auto n = static_cast<uint32_t>(count);
  write_idx(folder + "/" + stem + "-images-idx3-ubyte", {n, 28, 28}, pixels);
  write_idx(folder + "/" + stem + "-labels-idx1-ubyte", {n}, labels);
}

struct Reference {
  explicit Reference(const data::ImageSet& set) : images(set), stats(data::pixel_stats(set)) {
    for (int rank = 0; rank < kRanks; ++rank) {
      torch::manual_seed(kSeed);
      models.push_back(models::make_resnet());
    }
    std::vector<at::Tensor> decaying;
    std::vector<at::Tensor> plain;
    for (const at::Tensor& p : models[0]->parameters()) (p.dim() > 1 ? decaying : plain).push_back(p);
    const auto options = torch::optim::SGDOptions(0.2).momentum(0.9).nesterov(true);
    auto decay = options;
    auto without = options;
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(decaying, std::make_unique<torch::optim::SGDOptions>(decay.weight_decay(5e-4)));
    groups.emplace_back(plain, std::make_unique<torch::optim::SGDOptions>(without.weight_decay(0)));
    optimizer = std::make_unique<torch::optim::SGD>(groups, options);
  }

  double step(int64_t number, int64_t total) {
    double loss = 0;
    double count = 0;
    const int64_t position = sampler.position();
    for (int rank = 0; rank < kRanks; ++rank) {
      sampler.set_position(position);
      const data::SampleSlice slice = sampler.next(rank, kRanks);
      const auto size = static_cast<int64_t>(slice.indices.size());
      at::Tensor x = at::empty({size, 1, images.height, images.width});
      data::fill_images(images, slice.indices, stats, {.flip = true}, {kSeed, number, slice.first_slot},
                        {x.data_ptr<float>(), static_cast<size_t>(x.numel())});
      at::Tensor y = at::empty({size}, at::kLong);
      for (int64_t i = 0; i < size; ++i)
        y[i] = images.labels[static_cast<size_t>(slice.indices[static_cast<size_t>(i)])];
      const at::Tensor sum =
          at::cross_entropy_loss(models[static_cast<size_t>(rank)]->forward(x), y, {}, at::Reduction::Sum, -100, 0.05);
      models[static_cast<size_t>(rank)]->zero_grad();
      (sum * (1.0 * kRanks / static_cast<double>(slice.global_count))).backward();
      loss += sum.item<double>();
      count += static_cast<double>(size);
    }
    const torch::NoGradGuard no_grad;
    const auto mine = models[0]->parameters();
    const auto theirs = models[1]->parameters();
    for (size_t i = 0; i < mine.size(); ++i) mine[i].mutable_grad().add_(theirs[i].grad()).div_(kRanks);
    // Rises over a fifth of the steps, then falls to 0.
    const auto warmup = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(total) * 0.2));
    const double rate = number < warmup
                            ? 0.2 * static_cast<double>(number + 1) / static_cast<double>(warmup)
                            : 0.2 * std::max(0.0, 1.0 - static_cast<double>(number - warmup) /
                                                            static_cast<double>(std::max<int64_t>(1, total - warmup)));
    for (auto& group : optimizer->param_groups()) group.options().set_lr(rate);
    optimizer->step();
    for (size_t i = 0; i < mine.size(); ++i) theirs[i].copy_(mine[i]);
    return loss / count;
  }

  const data::ImageSet& images;
  data::PixelStats stats;
  data::Sampler sampler{{.num_samples = kImages, .global_batch = kGlobalBatch, .seed = kSeed}};
  std::vector<std::shared_ptr<models::Classifier>> models;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

std::vector<double> losses_of(const std::string& metrics) {
  std::ifstream in(metrics);
  std::vector<double> losses;
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("train/loss")) losses.push_back(row["train/loss"].get<double>());
  }
  return losses;
}

class TrainParity : public testing::TestWithParam<const char*> {};

TEST_P(TrainParity, EveryLossOfTheFirstEpochEqualsTheRanksRunInTurnBitForBit) {
  at::set_num_threads(1);
  const test::TempDir folder;
  write_images(folder.path(), "train", kImages);
  write_images(folder.path(), "t10k", 20);
  const std::string command = std::string(TRIREME_BIN_DIR) +
                              "/trireme-train --recipe resnet --epochs 1 --global-batch 64 --seed 7 --ranks 2" +
                              " --set log.every=1 --set ddp.gradients=" + GetParam() + " --data " + folder.path() +
                              " --run-dir " + folder / "run" + " >" + folder / "out" + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << std::ifstream(folder / "out").rdbuf();  // NOLINT: the command is ours
  const std::vector<double> got = losses_of(folder / "run/metrics.jsonl");

  const data::ImageSet images = data::read_image_set(folder.path(), "train");
  Reference reference(images);
  const int64_t steps = reference.sampler.steps_per_epoch();
  ASSERT_EQ(static_cast<int64_t>(got.size()), steps);
  for (int64_t step = 0; step < steps; ++step) {
    EXPECT_EQ(got[static_cast<size_t>(step)], reference.step(step, steps)) << "step " << step + 1;
  }
  EXPECT_LT(got.back(), got.front());
}
// Oracle: closed form. No machine has 2^60 bytes, and no tensor of 2 rows takes one of 3.
TEST(TorchErrors, MemoryThatCannotBeHadIsNoBugOfOurs) {
  const auto kind_from = [](const std::function<void()>& body) {
    try {
      body();
    } catch (const c10::Error& error) {
      return kind_of(error);
    }
    return ErrorKind::kUnsupported;
  };
  EXPECT_EQ(kind_from([] { (void)at::empty({int64_t{1} << 60}, at::kByte); }), ErrorKind::kOutOfMemory);
  EXPECT_EQ(kind_from([] { (void)at::zeros({2}).copy_(at::zeros({3})); }), ErrorKind::kInternal);
}
INSTANTIATE_TEST_SUITE_P(Gradients, TrainParity, testing::Values("arena", "staged", "bucket_view"));

}  // namespace
}  // namespace trireme

// Oracle: tests/golden/train/resnet_2_ranks.json, the losses of the first 20 steps of the main job as they were when the list was last written
// (tools/regen_golden.sh). TrainParity takes model, data order, augmentation and pixel statistics from the library itself; this list also notices
// when those change, and when the recipe's defaults do.
//
// Bitwise where the same machine code runs: same LibTorch, same instruction set, same kind of CPU (oneDNN chooses its kernels and their blocks by
// it). Elsewhere sums are formed in another order, with k terms at most, k = 128 images of a rank * 28 * 28 pixels in the gradient of the first
// convolution. Their roundings are independent, so they add up to sqrt(k) * 2^-24 of a value, and s steps to s times that: 3.8e-4 at step 20.
// (Seen at most, with AVX2, SSE4.1 and LibTorch's portable kernels in place of AVX-512: 2.2e-6.)
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
