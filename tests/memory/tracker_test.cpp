// Oracle: closed form. B x I -> H -> O in f32: parameters 4 (I H + H + H O + O) bytes, gradients as many, Adam's state twice as many. Of the forward
// stays what backward needs: a Linear keeps its input, Sigmoid its output, GELU its input.
#include "trireme/memory/tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::memory {
namespace {

using testing::HasSubstr;

constexpr int64_t kB = 32, kI = 784, kH = 256, kO = 10;
constexpr int64_t kFloat = 4;
constexpr int64_t kModel = kFloat * (kI * kH + kH + kH * kO + kO);

template <typename Activation>
torch::nn::Sequential mlp(Activation activation) {
  return torch::nn::Sequential(torch::nn::Linear(kI, kH), activation, torch::nn::Linear(kH, kO));
}

int64_t module_activations(const MemoryReport& report, const std::string& name) {
  for (const ModuleUse& module : report.modules) {
    if (module.name == name) return module.current[Category::kActivations];
  }
  return -1;
}

TEST(MemoryTracker, CountsATrainingStepOfAnMlp) {
  torch::manual_seed(1);
  torch::nn::Sequential model = mlp(torch::nn::Sigmoid());  // before the tracker: it must find them
  torch::optim::Adam adam(model->parameters());
  MemoryTracker tracker;
  tracker.add_module(*model);
  tracker.add_optimizer(adam);
  EXPECT_EQ(tracker.report().current.total(), kModel);
  EXPECT_EQ(tracker.report().current[Category::kParameters], kModel);

  const at::Tensor x = torch::rand({kB, kI});
  constexpr int64_t kInput = kFloat * kB * kI;
  EXPECT_EQ(tracker.report().current[Category::kOther], kInput);
  {
    at::Tensor y = model->forward(x);
    const MemoryReport report = tracker.report();
    // The first Linear's output dies when Sigmoid's is there; at that moment both live.
    EXPECT_EQ(report.current[Category::kActivations], kFloat * kB * (kH + kO));
    EXPECT_EQ(report.peak[Category::kActivations], kFloat * kB * 2 * kH);
    EXPECT_EQ(module_activations(report, "0"), kFloat * kB * kH);  // made of its output
    EXPECT_EQ(module_activations(report, "2"), kFloat * kB * kO);
    EXPECT_EQ(report.current[Category::kGradients], 0);
    y.sum().backward();
    EXPECT_EQ(tracker.report().current[Category::kGradients], kModel);
  }
  EXPECT_EQ(tracker.report().current[Category::kActivations], 0);

  adam.step();
  tracker.end_step();
  MemoryReport report = tracker.report();
  EXPECT_EQ(report.current[Category::kOptimizerState], 2 * kModel);
  EXPECT_EQ(report.current[Category::kParameters], kModel);
  EXPECT_EQ(report.current[Category::kOther], kInput);
  EXPECT_EQ(report.current.total(), 4 * kModel + kInput);
  // The update's temporaries (a square root, a quotient) are other, and the state never was.
  EXPECT_LT(report.peak[Category::kOther], kInput + 2 * kFloat * kI * kH + 4096);
  const std::vector<TensorRow> rows = tracker.tensors();
  ASSERT_EQ(rows.size(), 16U);  // 4 parameters, their gradients, and two of Adam's for each
  EXPECT_EQ(rows[4].name, "0.weight.grad");
  EXPECT_EQ(rows[8].name, "0.weight.exp_avg");
  EXPECT_EQ(rows[15].name, "2.bias.exp_avg_sq");
  EXPECT_EQ(rows[15].dtype, "float32");
  int64_t sum = 0;
  for (const TensorRow& row : rows) sum += row.bytes;
  EXPECT_EQ(sum, 4 * kModel);
  adam.zero_grad();
  tracker.end_step();
  report = tracker.report();
  EXPECT_EQ(report.current[Category::kGradients], 0);
  EXPECT_EQ(report.peak[Category::kGradients], kModel);
  EXPECT_EQ(report.steps, 2);
}

TEST(MemoryTracker, KeepsTheInputOfGeluToo) {
  MemoryTracker tracker;
  torch::nn::Sequential model = mlp(torch::nn::GELU());
  tracker.add_module(*model);
  const at::Tensor y = model->forward(torch::rand({kB, kI}));
  EXPECT_EQ(tracker.report().current[Category::kActivations], kFloat * kB * (2 * kH + kO));
}

TEST(MemoryTracker, WithoutGradientsOnlyTheOutputStays) {
  MemoryTracker tracker;
  torch::nn::Sequential model = mlp(torch::nn::GELU());
  tracker.add_module(*model);
  const torch::NoGradGuard no_grad;
  const at::Tensor y = model->forward(torch::rand({kB, kI}));
  const MemoryReport report = tracker.report();
  EXPECT_EQ(report.current[Category::kActivations], kFloat * kB * kO);
  EXPECT_EQ(report.peak[Category::kActivations], kFloat * kB * 2 * kH);
}

TEST(MemoryTracker, KnowsTheStateOfEveryOptimizer) {
  using namespace torch::optim;
  const auto state_of = [](auto make) {
    torch::nn::Sequential model = mlp(torch::nn::ReLU());
    auto optimizer = make(model->parameters());
    MemoryTracker tracker;
    tracker.add_module(*model);
    tracker.add_optimizer(*optimizer);
    model->forward(torch::rand({kB, kI})).sum().backward();
    optimizer->step();
    return tracker.report().current[Category::kOptimizerState];
  };
  using Parameters = std::vector<at::Tensor>;
  EXPECT_EQ(state_of([](Parameters p) { return std::make_unique<SGD>(p, SGDOptions(0.1)); }), 0);
  EXPECT_EQ(state_of([](Parameters p) { return std::make_unique<SGD>(p, SGDOptions(0.1).momentum(0.9)); }), kModel);
  EXPECT_EQ(state_of([](Parameters p) { return std::make_unique<AdamW>(p); }), 2 * kModel);
  EXPECT_EQ(state_of([](Parameters p) { return std::make_unique<Adam>(p, AdamOptions().amsgrad(true)); }), 3 * kModel);
  EXPECT_EQ(state_of([](Parameters p) { return std::make_unique<RMSprop>(p); }), kModel);
  EXPECT_EQ(state_of([](Parameters p) { return std::make_unique<Adagrad>(p); }), kModel);
}

TEST(MemoryTracker, CountsASharedStorageOnceAndMarksIt) {
  torch::nn::Linear a(64, 64);
  torch::nn::Linear b(64, 64);
  b->weight = a->weight;
  MemoryTracker tracker;
  tracker.add_parameters({{"a.weight", a->weight}, {"b.weight", b->weight}, {"flat", a->weight.view({-1})}});
  EXPECT_EQ(tracker.report().current[Category::kParameters], kFloat * 64 * 64);
  const std::vector<TensorRow> rows = tracker.tensors();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].bytes, kFloat * 64 * 64);
  EXPECT_EQ(rows[1].bytes, 0);
  EXPECT_EQ(rows[1].shared_with, "a.weight");
  EXPECT_EQ(rows[2].shared_with, "a.weight");
  EXPECT_EQ(rows[0].shape, (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(rows[0].device, "cpu");
}

TEST(MemoryTracker, SeesTheEndOfWhatWasThereBeforeAndOfForeignMemory) {
  std::vector<float> foreign(100);
  MemoryTracker tracker;
  NamedTensors state = {{"x.before", torch::zeros({50})}, {"x.foreign", torch::from_blob(foreign.data(), {100})}};
  tracker.add_optimizer_state([&state] { return state; });
  EXPECT_EQ(tracker.report().current[Category::kOptimizerState], kFloat * 150);
  state.pop_back();
  EXPECT_EQ(tracker.report().current[Category::kOptimizerState], kFloat * 50);
  state.clear();
  EXPECT_EQ(tracker.report().current.total(), 0);
}

// 100 tensors of 4,000 bytes, made on one thread and freed on another, some of them when the tracker is gone.
TEST(MemoryTracker, OtherThreadsMayFreeAndTensorsMayOutliveIt) {
  std::vector<at::Tensor> kept;
  {
    MemoryTracker tracker;
    std::thread([&] {
      for (int i = 0; i < 100; ++i) kept.push_back(at::empty({1000}));
    }).join();
    EXPECT_EQ(tracker.report().current[Category::kOther], 400'000);
    std::thread([&] { kept.resize(40); }).join();
    EXPECT_EQ(tracker.report().current[Category::kOther], 160'000);
    EXPECT_EQ(tracker.report().peak[Category::kOther], 400'000);
  }
  std::thread([&] { kept.clear(); }).join();
  MemoryTracker next;
  EXPECT_EQ(next.report().current.total(), 0);
}

// An operator that throws has been left: what comes after it is judged by itself.
TEST(MemoryTracker, AnExceptionInForwardLeavesNothingBehind) {
  torch::nn::Linear linear(4, 5);
  MemoryTracker tracker;
  tracker.add_module(*linear);
  for (int i = 0; i < 3; ++i) EXPECT_THROW((void)linear->forward(at::ones({3, 7})), c10::Error);
  const int64_t before = tracker.report().current[Category::kActivations];
  const at::Tensor made = at::empty({1000});
  EXPECT_EQ(before, 0);
  EXPECT_EQ(tracker.report().current[Category::kActivations], 0);
  EXPECT_EQ(tracker.report().current[Category::kOther], 4000);
}

// Trackers come and go while another thread computes: neither its operators nor its blocks may hold on to one that is gone.
TEST(MemoryTracker, MayEndWhileAnotherThreadComputes) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    torch::nn::Linear linear(8, 8);
    while (!stop) linear->forward(at::ones({4, 8})).sum().backward();
  });
  for (int i = 0; i < 200; ++i) {
    MemoryTracker tracker;
    const at::Tensor mine = at::empty({1000});
    EXPECT_GE(tracker.report().current[Category::kOther], 4000);
  }
  stop = true;
  other.join();
}

TEST(MemoryTracker, CommunicationBuffersCountWhileTheyLive) {
  std::vector<std::byte> before(1000);
  const CommunicationBuffer first(before.data(), before.size());
  MemoryTracker tracker;
  EXPECT_EQ(tracker.report().current[Category::kCommunication], 1000);
  {
    std::vector<std::byte> memory(500);
    const CommunicationBuffer second(memory.data(), memory.size());
    EXPECT_EQ(tracker.report().current[Category::kCommunication], 1500);
  }
  const MemoryReport report = tracker.report();
  EXPECT_EQ(report.current[Category::kCommunication], 1000);
  EXPECT_EQ(report.peak[Category::kCommunication], 1500);
}

TEST(MemoryTracker, ThereIsOneAndItEnds) {
  at::Tensor kept;
  {
    MemoryTracker tracker;
    kept = torch::zeros({1000});
    try {
      const MemoryTracker second;
      FAIL() << "a second tracker was made";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnavailable);
      EXPECT_NE(std::string(error.what()).find("another MemoryTracker lives"), std::string::npos) << error.what();
    }
  }
  kept = torch::zeros({10});  // frees a block of the tracker that is gone
  const MemoryTracker again;
}

/// The text of the error that a step ends with.
std::string failure_of(MemoryTracker& tracker, const std::function<void()>& step) {
  try {
    tracker.run_step(step);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    return error.what();
  }
  return "no error";
}

TEST(MemoryTracker, SaysWhoHeldWhatWhenTheAllocatorRefused) {
  torch::nn::Sequential model = mlp(torch::nn::GELU());
  MemoryTracker tracker;
  tracker.add_module(*model);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  rlimit limited = before;
  limited.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (300 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const std::string text = failure_of(tracker, [&] {
    const at::Tensor y = model->forward(torch::rand({kB, kI}));
    const at::Tensor more = torch::empty({400, 1 << 20}, at::kByte);
  });
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_THAT(text, HasSubstr("out of memory: 400.0 MiB were asked for, "));
  EXPECT_THAT(
      text,
      HasSubstr("were left (RLIMIT_AS).\n  held at that moment: parameters 795.0 KiB, activations 65.2 KiB, other "));
  EXPECT_THAT(text, HasSubstr("1. half the batch"));
  EXPECT_THAT(text, HasSubstr("The allocator's words: "));
}

TEST(MemoryTracker, NamesTheModuleWhoseOperatorAskedForTooMuch) {
  torch::nn::Sequential model = mlp(torch::nn::GELU());
  MemoryTracker tracker;
  tracker.add_module(*model);
  const std::string text =
      failure_of(tracker, [&] { (void)model->forward(torch::zeros({1, kI}).expand({int64_t{1} << 36, kI})); });
  EXPECT_THAT(text, HasSubstr("were asked for by an operator of module '0' in forward"));
  EXPECT_THAT(text, HasSubstr("probably a shape is wrong"));
}

TEST(MemoryTracker, NestsTheAllocatorsErrorAndLetsOthersPass) {
  MemoryTracker tracker;
  EXPECT_THROW(tracker.run_step([] { throw std::out_of_range("mine"); }), std::out_of_range);
  EXPECT_THAT(failure_of(tracker, [] { throw std::bad_alloc(); }),
              HasSubstr("held when most was held: nothing that was tracked"));
  try {
    tracker.run_step([] { (void)torch::empty({int64_t{1} << 45}); });
    FAIL() << "128 TiB were had";
  } catch (const Error& error) {
    EXPECT_THROW(std::rethrow_if_nested(error), c10::Error);
  }
  tracker.run_step([] {});
  EXPECT_EQ(tracker.report().steps, 1);
}

}  // namespace
}  // namespace trireme::memory
