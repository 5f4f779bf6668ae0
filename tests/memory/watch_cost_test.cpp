// Oracle: the same step without anybody watching, in turns in one process. The limits are wide; the figures are printed for docs/howto/memory.md.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "trireme/memory/history.h"
#include "trireme/memory/tracker.h"

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
