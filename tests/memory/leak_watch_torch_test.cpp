// Oracle: what the test's own training loop keeps. Real tensors, real autograd, the sampling of a user (one in 512 KiB). The loops stand outside
// namespace trireme, as a user's do.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "trireme/memory/leak_watch.h"

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
