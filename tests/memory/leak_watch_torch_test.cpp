// Oracle: what the test's own training loop keeps. Real tensors, real autograd, the sampling of a user (one in 512 KiB). The loops stand outside
// namespace trireme, as a user's do.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "trireme/memory/history.h"
#include "trireme/memory/leak_watch.h"
#include "trireme/memory/tracker.h"

namespace {

using trireme::memory::Growth;

struct Loop {
  torch::nn::Sequential net{torch::nn::Linear(512, 512), torch::nn::ReLU(), torch::nn::Linear(512, 10)};
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)};

  at::Tensor loss() { return torch::mse_loss(net->forward(torch::rand({256, 512})), torch::rand({256, 10})); }
  void update(const at::Tensor& loss) {
    sgd.zero_grad();
    loss.backward({}, /*retain_graph=*/true);
    sgd.step();
  }
};

}  // namespace

// The graph of each step stays: the input and the hidden layer, 256 x 512 floats each and more, about a megabyte and a half.
[[gnu::noinline]] void adds_up_losses_with_their_graphs(Loop& loop, at::Tensor& total) {
  const at::Tensor loss = loop.loss();
  loop.update(loss);
  total = total + loss;
}
[[gnu::noinline]] void adds_up_losses_as_numbers(Loop& loop, double& total) {
  const at::Tensor loss = loop.loss();
  loop.update(loss);
  total += loss.item<double>();
}

namespace {

TEST(LeakWatchTorch, NamesALossThatIsKeptWithItsGraphAndNothingInAHealthyRun) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  trireme::memory::start_leak_watch();
  ASSERT_TRUE(trireme::memory::leak_watch_is_on());
  Loop loop;
  double sum = 0;
  for (int step = 0; step < 2000; ++step) {
    adds_up_losses_as_numbers(loop, sum);
    const std::vector<Growth> found = trireme::memory::end_leak_watch_step();
    ASSERT_TRUE(found.empty()) << "healthy step " << step << ": " << found[0].text();
  }
  at::Tensor total = torch::zeros({});
  std::vector<Growth> found;
  int steps = 0;
  for (; steps < 20 && found.empty(); ++steps) {
    adds_up_losses_with_their_graphs(loop, total);
    found = trireme::memory::end_leak_watch_step();
  }
  ASSERT_FALSE(found.empty()) << "nothing was named within " << steps << " steps";
  // Both lines of the loop that allocate what the graph keeps are right: the step and the helper it calls.
  EXPECT_TRUE(found[0].where.find("adds_up_losses_with_their_graphs") != std::string::npos ||
              found[0].where.find("Loop::loss") != std::string::npos)
      << found[0].text();
  EXPECT_GE(found[0].since_step, 1999);
  EXPECT_TRUE(found[0].with_graph) << found[0].text();
  std::printf("after %d steps: %s\n", steps, found[0].text().c_str());
}

}  // namespace

// Oracle: the same step without anybody watching, in turns in one process. The limits are wide; the figures are printed for docs/howto/memory.md.
namespace trireme::memory {
namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Costs {
  double plain_ms, tracker, history, without_stacks;  // ratios to plain
};

Costs costs_of(std::vector<int64_t> widths, int rounds) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  torch::nn::Sequential model;
  for (size_t i = 1; i < widths.size(); ++i) {
    model->push_back(torch::nn::Linear(widths[i - 1], widths[i]));
    if (i + 1 < widths.size()) model->push_back(torch::nn::ReLU());
  }
  torch::optim::SGD sgd(model->parameters(), 0.01);
  const at::Tensor x = torch::rand({32, widths.front()});
  const at::Tensor y = torch::randint(0, widths.back(), {32});
  const auto step_ms = [&](MemoryTracker* tracker) {
    const auto start = std::chrono::steady_clock::now();
    sgd.zero_grad();
    torch::cross_entropy_loss(model->forward(x), y).backward();
    sgd.step();
    if (tracker != nullptr) tracker->end_step();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  constexpr int kStepsInARow = 5;  // the first warms up
  std::array<std::vector<double>, 4> times;
  const auto measure = [&](size_t kind, MemoryTracker* tracker) {
    for (int i = 0; i < kStepsInARow; ++i) {
      const double ms = step_ms(tracker);
      if (i > 0) times[kind].push_back(ms);
    }
  };
  for (int round = 0; round < rounds; ++round) {
    measure(0, nullptr);
    {
      MemoryTracker tracker;
      tracker.add_module(*model);
      tracker.add_optimizer(sgd);
      measure(1, &tracker);
    }
    record_memory_history();
    measure(2, nullptr);
    MemoryHistoryOptions options;
    options.stacks = false;
    record_memory_history(options);
    measure(3, nullptr);
    stop_memory_history();
  }
  const double plain = median(times[0]);
  return {plain, median(times[1]) / plain, median(times[2]) / plain, median(times[3]) / plain};
}

TEST(WatchCost, IsASmallPartOfAStep) {
  const auto show = [](const char* name, const Costs& costs) {
    std::printf("%-20s plain %.3f ms; tracker %+.1f %%, history %+.1f %%, without stacks %+.1f %%\n", name,
                costs.plain_ms, 100 * (costs.tracker - 1), 100 * (costs.history - 1), 100 * (costs.without_stacks - 1));
  };
  const Costs small = costs_of({784, 256, 10}, 60);
  show("784-256-10", small);
  const Costs large = costs_of({784, 2048, 2048, 10}, 12);
  show("784-2048-2048-10", large);
  EXPECT_LT(small.tracker, 1.5);
  EXPECT_LT(small.history, 3.0);
  EXPECT_LT(small.without_stacks, 1.5);
  EXPECT_LT(large.tracker, 1.5);
  EXPECT_LT(large.history, 1.5);
}

}  // namespace
}  // namespace trireme::memory
