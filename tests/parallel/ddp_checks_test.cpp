// Oracle: the fault that each test makes itself: the rank, the parameter and the step of a value that is changed, the operator and the module that
// make a NaN. The models stand in namespace trireme, whose frames are passed over, so no line of the program is expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <string>

#include "base/str.h"
#include "parallel/ddp_oracle.h"
#include "support/run_ranks.h"
#include "trireme/trireme.h"

namespace trireme {
namespace {

using test::error_of;
using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using torch::nn::Sequential;
using Ddp = DistributedDataParallel<Sequential>;

Sequential small_net() {
  torch::manual_seed(3);
  return Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
}

void train_step(Ddp& ddp, torch::optim::SGD& sgd, int rank) {
  sgd.zero_grad();
  const at::Tensor x = torch::arange(24, at::kFloat).reshape({6, 4}) * 0.1 + rank;
  ddp.forward(x).square().mean().backward();
  sgd.step();
}

class ValueCheck : public testing::TestWithParam<int> {};

TEST_P(ValueCheck, NamesTheParameterAndTheRankThatDiffersOnEveryRank) {
  const int size = GetParam();
  for (const int culprit : {0, size - 1}) {
    std::vector<Sequential> models;
    for (int r = 0; r < size; ++r) models.push_back(small_net());
    run_ranks(size, [&](Group& group) {
      DdpOptions options;
      options.check_values_every = 2;
      Ddp ddp(group, models[static_cast<size_t>(group.rank())], options);
      torch::optim::SGD sgd(ddp.parameters(), 0.1);
      for (int step = 0; step < 5; ++step) train_step(ddp, sgd, group.rank());  // compared before steps 3 and 5: equal
      if (group.rank() == culprit) {
        const torch::NoGradGuard no_grad;
        models[static_cast<size_t>(culprit)]->named_parameters()["3.bias"].add_(1e-7);
      }
      train_step(ddp, sgd, group.rank());
      const Error error = error_of([&] { train_step(ddp, sgd, group.rank()); });
      EXPECT_EQ(error.kind(), ErrorKind::kMismatch) << error.what();
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("after 6 training steps"), HasSubstr("parameter '3.bias' f32[2] with hash")));
      if (size > 2) {
        EXPECT_THAT(error.what(), HasSubstr(str("rank ", culprit, ": parameter")));
      }
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, ValueCheck, testing::Values(2, 3));

TEST(ValueCheckOptions, WrongStepsAreRefusedByName) {
  DdpOptions options;
  set_ddp_option(options, "check_values_every", "100");
  EXPECT_EQ(options.check_values_every, 100);
  for (const char* wrong : {"-1", "1.5", "often", ""}) {
    const Error error = error_of([&] { set_ddp_option(options, "check_values_every", wrong); });
    EXPECT_THAT(error.what(), AllOf(HasSubstr("check_values_every"), HasSubstr("whole number of steps")));
  }
}

parallel::NamedTensors named(Sequential& net) {
  parallel::NamedTensors all;
  for (const auto& item : net->named_parameters()) all.emplace_back(item.key(), item.value());
  return all;
}

TEST(FiniteCheck, NamesTheOperatorThatMadeTheNanAndTheModuleBeforeIt) {
  Sequential net = small_net();
  const parallel::FiniteCheck check(named(net));
  set_step(12);
  at::Tensor y = net->forward(torch::rand({6, 4}));
  EXPECT_EQ(parallel::FiniteCheck::first_fault(), "");
  y = (y - 100).log() + 1;
  const std::string fault = parallel::FiniteCheck::first_fault();
  EXPECT_THAT(
      fault,
      AllOf(HasSubstr("step 12: "),
            HasSubstr("aten::log made the first NaN out of finite values (f32[6, 2], 12 of 12; inputs f32[6, 2])"),
            HasSubstr("in module '3'")));
}

TEST(FiniteCheck, NamesAnInfinityOfBackward) {
  Sequential net(torch::nn::Linear(4, 1));
  const parallel::FiniteCheck check(named(net));
  // The root's slope at 0 is infinite, its value is not.
  (net->forward(torch::zeros({2, 4})) - net->named_parameters()["0.bias"]).sqrt().sum().backward();
  const std::string fault = parallel::FiniteCheck::first_fault();
  EXPECT_THAT(fault, HasSubstr("made the first infinity out of finite values"));
  EXPECT_THAT(fault, HasSubstr("in module '0'"));
}

TEST(FiniteCheck, NamesAParameterOfTheModelItself) {
  torch::nn::Linear net(4, 2);
  const parallel::FiniteCheck check({{"weight", net->weight}, {"bias", net->bias}});
  (void)(net->forward(torch::ones({2, 4})) - 1e9).sqrt();
  EXPECT_THAT(parallel::FiniteCheck::first_fault(),
              AllOf(HasSubstr("aten::sqrt made the first NaN"), HasSubstr("of the model itself")));
}

TEST(FiniteCheck, TellsDataThatCameInWithIt) {
  Sequential net = small_net();
  at::Tensor x = torch::rand({6, 4});
  x[3][1] = std::numeric_limits<float>::quiet_NaN();
  const parallel::FiniteCheck check(named(net));
  (void)net->forward(x);
  EXPECT_THAT(parallel::FiniteCheck::first_fault(),
              AllOf(HasSubstr("was not finite when it came (f32[6, 4])"), HasSubstr("look at the data")));
}

TEST(FiniteCheck, IsSilentOverTrainingWithAMask) {
  Sequential net = small_net();
  const parallel::FiniteCheck check(named(net));
  torch::optim::Adam adam(net->parameters(), 0.01);
  for (int step = 0; step < 20; ++step) {
    adam.zero_grad();
    at::Tensor scores = net->forward(torch::rand({6, 4}));
    scores = scores.masked_fill(torch::eye(6, at::kBool).narrow(1, 0, 2), -std::numeric_limits<float>::infinity());
    torch::softmax(torch::cat({scores, torch::zeros({6, 1})}, 1), 1).square().mean().backward();
    adam.step();
  }
  EXPECT_EQ(parallel::FiniteCheck::first_fault(), "");
}

TEST(FiniteCheck, OneAtATime) {
  const parallel::FiniteCheck check({});
  const Error error = error_of([] { const parallel::FiniteCheck second({}); });
  EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace trireme
