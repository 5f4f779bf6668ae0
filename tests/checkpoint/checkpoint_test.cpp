// Oracle: the tensors before the save, compared bit for bit; and a run that was never interrupted.
#include "trireme/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <torch/torch.h>
#include <unistd.h>

#include <thread>

#include "profile/collective_trace.h"
#include "support/patience.h"
#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

TEST(Checkpoint, BringsBackEveryBit) {
  const test::TempDir dir;
  torch::manual_seed(1);
  State state;
  for (const auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                          at::kFloat, at::kDouble}) {
    state.tensors[std::string("t.") + c10::toString(type)] = (torch::randn({3, 5}) * 50).to(type);
  }
  state.tensors["nan"] = torch::tensor({0x7fc00001, -1}, at::kInt).view(at::kFloat);
  state.tensors["scalar"] = torch::tensor(2.5);
  state.tensors["empty"] = torch::empty({0, 3});
  state.tensors["last"] = torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  state.metadata["epoch"] = "3";
  EXPECT_EQ(save(dir.path(), 7, state), dir / "step-7");
  const auto loaded = load_latest(dir.path());
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->step, 7);
  EXPECT_EQ(loaded->state.metadata, state.metadata);
  ASSERT_EQ(loaded->state.tensors.size(), state.tensors.size());
  for (const auto& [name, tensor] : state.tensors)
    EXPECT_TRUE(same_bits(tensor, loaded->state.tensors.at(name))) << name;
}

// A save waits for the lock of its root; meanwhile, and no longer, the rank says that it is busy with it.
TEST(Checkpoint, ARankThatSavesSaysSo) {
  const test::TempDir dir;
  const auto trace = profile::open_collective_trace({.capacity = 8});
  State state;
  state.tensors["w"] = torch::ones({10});
  const int root = open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(root, LOCK_EX), 0);
  std::thread saver([&] { save(dir.path(), 1, state); });
  const auto until = std::chrono::steady_clock::now() + test::kPatience;
  while (trace->snapshot().busy.empty() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  const auto during = trace->snapshot().busy;
  flock(root, LOCK_UN);
  saver.join();
  close(root);
  ASSERT_EQ(during.size(), 1U);
  EXPECT_EQ(during[0].what, "saving a checkpoint");
  EXPECT_EQ(during[0].fraction, 0);
  EXPECT_TRUE(trace->snapshot().busy.empty());
  EXPECT_TRUE(load_latest(dir.path()).has_value());
}

struct TrainingRun {
  torch::nn::Sequential model{torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)), torch::nn::BatchNorm2d(4),
                              torch::nn::Dropout(0.5), torch::nn::Flatten(), torch::nn::Linear(16, 2)};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  explicit TrainingRun(const std::string& kind) {
    model->to(at::kFloat);
    for (auto& p : model->parameters()) {
      if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
    }
    if (kind == "sgd")
      optimizer = std::make_unique<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    if (kind == "adam")
      optimizer = std::make_unique<torch::optim::Adam>(model->parameters(), torch::optim::AdamOptions().amsgrad(true));
    if (kind == "adamw") optimizer = std::make_unique<torch::optim::AdamW>(model->parameters());
  }
  NamedParameters named() const {
    NamedParameters all;
    for (const auto& item : model->named_parameters()) all.emplace_back(item.key(), item.value());
    return all;
  }
  void step() {
    optimizer->zero_grad();
    model->forward(torch::randn({5, 3, 4, 4})).square().mean().backward();
    optimizer->step();
  }
};

class CheckpointResume : public testing::TestWithParam<const char*> {};
TEST_P(CheckpointResume, GoesOnAsIfNeverInterrupted) {
  const test::TempDir dir;
  torch::manual_seed(3);
  TrainingRun whole(GetParam());
  for (int i = 0; i < 3; ++i) whole.step();
  State state;
  add_module_state(state, *whole.model);
  add_optimizer_state(state, *whole.optimizer, whole.named());
  add_rng_state(state);
  save(dir.path(), 3, state);
  for (int i = 0; i < 3; ++i) whole.step();

  TrainingRun resumed(GetParam());
  {
    const auto loaded = load_latest(dir.path());
    ASSERT_TRUE(loaded.has_value());
    restore_module_state(loaded->state, *resumed.model);
    restore_optimizer_state(loaded->state, *resumed.optimizer, resumed.named());
    restore_rng_state(loaded->state);
  }
  EXPECT_TRUE(resumed.model->parameters()[0].is_contiguous(at::MemoryFormat::ChannelsLast));
  for (int i = 0; i < 3; ++i) resumed.step();
  for (size_t i = 0; i < whole.model->parameters().size(); ++i) {
    EXPECT_TRUE(same_bits(whole.model->parameters()[i], resumed.model->parameters()[i])) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Optimizers, CheckpointResume, testing::Values("sgd", "adam", "adamw"));

TEST(Checkpoint, NamesWhatDoesNotFit) {
  TrainingRun run("sgd");
  State state;
  add_module_state(state, *run.model);
  const auto error = [&](State changed) -> std::string {
    try {
      restore_module_state(changed, *run.model);
    } catch (const Error& thrown) {
      EXPECT_EQ(thrown.kind(), ErrorKind::kMismatch);
      return thrown.what();
    }
    return "";
  };
  State missing = state;
  missing.tensors.erase("model.4.bias");
  EXPECT_THAT(error(missing), testing::HasSubstr("no tensor 'model.4.bias'"));
  State extra = state;
  extra.tensors["model.9.bias"] = torch::zeros({2});
  EXPECT_THAT(error(extra), testing::HasSubstr("'model.9.bias'"));
  State other = state;
  other.tensors["model.4.bias"] = torch::zeros({3});
  EXPECT_THAT(error(other), testing::HasSubstr("Float [3]"));
}

}  // namespace
}  // namespace trireme::checkpoint
