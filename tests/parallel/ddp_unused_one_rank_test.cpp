// Oracle: one process that sees the whole batch (f64, 1e-12), and messages' texts. Parameters that a step does not use, that need no gradient,
// or that it uses twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <memory>
#include <vector>

#include "base/str.h"
#include "parallel/ddp_oracle.h"
#include "support/run_ranks.h"
#include "trireme/trireme.h"

namespace trireme {
namespace {

using test::Data;
using test::error_of;
using test::expect_close;
using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A net with a branch that may stay unused, a frozen layer and a weight that is tied.
struct BranchNetImpl : torch::nn::Module {
  torch::nn::Linear in{nullptr}, used{nullptr}, branch{nullptr}, frozen{nullptr}, out{nullptr};
  BranchNetImpl() {
    in = register_module("in", torch::nn::Linear(6, 8));
    used = register_module("used", torch::nn::Linear(8, 8));
    branch = register_module("branch", torch::nn::Linear(8, 8));
    frozen = register_module("frozen", torch::nn::Linear(8, 8));
    out = register_module("out", torch::nn::Linear(8, 3));
    for (at::Tensor& p : frozen->parameters()) p.set_requires_grad(false);
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, bool with_branch) {
    at::Tensor h = torch::tanh(in(x));
    h = torch::tanh(frozen(used(h)));
    if (with_branch) h = h + branch(h);
    return out(h);
  }
};
TORCH_MODULE(BranchNet);
using BranchDdp = DistributedDataParallel<BranchNet>;

std::vector<BranchNet> make_branch_nets(int size) {
  std::vector<BranchNet> nets;
  for (int r = 0; r < size; ++r) {
    torch::manual_seed(3);
    nets.emplace_back();
  }
  return nets;
}

at::Tensor branch_loss(const at::Tensor& output, const Data& data) {
  return torch::nn::functional::cross_entropy(output, data.y);
}

// Case D01.
TEST(DdpUnused, IsAnErrorWithNamesRankAndTheWayOut) {
  const std::vector<BranchNet> nets = make_branch_nets(2);
  run_ranks(2, [&](Group& group) {
    BranchDdp ddp(group, nets[static_cast<size_t>(group.rank())]);
    const Data data = Data(0).part(group.rank(), 2);
    const Error error = error_of([&] { branch_loss(ddp.forward(data.x, false), data).backward(); });
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(str("rank ", group.rank(), "/2")), HasSubstr("2 of 8 parameters"),
                                    HasSubstr("'branch.weight'"), HasSubstr("'branch.bias'"), Not(HasSubstr("frozen")),
                                    HasSubstr("find_unused_parameters = true")));
    // It can go on afterwards.
    ddp->zero_grad();
    branch_loss(ddp.forward(data.x, true), data).backward();
    EXPECT_TRUE(ddp.module()->branch->weight.grad().defined());
  });
}

class DdpUnusedIn : public testing::TestWithParam<GradientMode> {};

TEST_P(DdpUnusedIn, EveryModeWithDetectionOnEqualsOneProcess) {
  for (const int size : {2, 3}) {
    // Ranks use the branch as these say, by step: nobody, some, all, nobody again.
    const auto uses = [size](int step, int rank) { return step == 2 || (step == 1 && rank == size - 1); };
    torch::manual_seed(3);
    BranchNet single;
    torch::optim::SGD single_optimizer(single->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    std::vector<std::vector<at::Tensor>> want;  // by step
    std::vector<bool> want_branch_gradient;
    for (int step = 0; step < 4; ++step) {
      single_optimizer.zero_grad();
      for (int rank = 0; rank < size; ++rank) {
        const Data data = Data(step).part(rank, size);
        (branch_loss(single->forward(data.x, uses(step, rank)), data) / size).backward();
      }
      want_branch_gradient.push_back(single->branch->weight.grad().defined());
      single_optimizer.step();
      want.emplace_back();
      for (const at::Tensor& p : single->parameters()) want.back().push_back(p.detach().clone());
    }
    const std::vector<BranchNet> nets = make_branch_nets(size);
    run_ranks(size, [&](Group& group) {
      DdpOptions options;
      options.find_unused_parameters = true;
      options.gradients = GetParam();
      options.first_bucket_bytes = options.bucket_bytes = 300;  // several buckets
      BranchDdp ddp(group, nets[static_cast<size_t>(group.rank())], options);
      torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 4; ++step) {
        const Data data = Data(step).part(group.rank(), size);
        optimizer.zero_grad();
        branch_loss(ddp.forward(data.x, uses(step, group.rank())), data).backward();
        // Unused on every rank: no gradient, so that momentum does not move it (case D11).
        EXPECT_EQ(ddp.module()->branch->weight.grad().defined(), want_branch_gradient[static_cast<size_t>(step)]);
        optimizer.step();
        const std::vector<at::Tensor> params = ddp.parameters();
        for (size_t p = 0; p < params.size(); ++p) {
          expect_close(params[p], want[static_cast<size_t>(step)][p], str("step ", step, " parameter ", p));
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, DdpUnusedIn,
                         testing::Values(GradientMode::kStaged, GradientMode::kBucketView, GradientMode::kArena));

// Case D05: the branch is used in the local micro-batch only.
TEST(DdpUnused, WhatNoSyncAddedUpIsReducedAlthoughTheLastMicroBatchDoesNotUseIt) {
  torch::manual_seed(3);
  BranchNet single;
  for (int rank = 0; rank < 2; ++rank) {
    for (const bool with_branch : {true, false}) {
      const Data data = Data(with_branch ? 0 : 1).part(rank, 2);
      (branch_loss(single->forward(data.x, with_branch), data) / 2).backward();
    }
  }
  const std::vector<BranchNet> nets = make_branch_nets(2);
  run_ranks(2, [&](Group& group) {
    DdpOptions options;
    options.find_unused_parameters = true;
    BranchDdp ddp(group, nets[static_cast<size_t>(group.rank())], options);
    const Data first = Data(0).part(group.rank(), 2);
    const Data second = Data(1).part(group.rank(), 2);
    {
      const auto local = ddp.no_sync();
      branch_loss(ddp.forward(first.x, true), first).backward();
    }
    branch_loss(ddp.forward(second.x, false), second).backward();
    expect_close(ddp.module()->branch->weight.grad(), single->branch->weight.grad(), "branch.weight");
    expect_close(ddp.module()->in->weight.grad(), single->in->weight.grad(), "in.weight");
  });
}

TEST(DdpFrozen, ParametersWithoutGradientAreSentOnceAndLeftAlone) {
  std::vector<BranchNet> nets = make_branch_nets(2);
  const at::Tensor want = nets[0]->frozen->weight.detach().clone();
  {
    const at::NoGradGuard no_grad;
    nets[1]->frozen->weight.add_(1);
  }
  run_ranks(2, [&](Group& group) {
    BranchDdp ddp(group, nets[static_cast<size_t>(group.rank())]);
    EXPECT_TRUE(at::equal(ddp.module()->frozen->weight, want));
    const Data data = Data(0).part(group.rank(), 2);
    branch_loss(ddp.forward(data.x, true), data).backward();
    EXPECT_FALSE(ddp.module()->frozen->weight.grad().defined());
  });
}

struct TiedHeadImpl : torch::nn::Module {
  at::Tensor weight;
  explicit TiedHeadImpl(const at::Tensor& tied) { weight = register_parameter("weight", tied); }
};
TORCH_MODULE(TiedHead);

struct TiedNetImpl : torch::nn::Module {
  torch::nn::Linear a{nullptr};
  TiedHead b{nullptr};
  TiedNetImpl() {
    a = register_module("a", torch::nn::Linear(6, 6));
    a->to(torch::kDouble);
    b = register_module("b", TiedHead(a->weight));
  }
  at::Tensor forward(const at::Tensor& x) { return torch::linear(torch::tanh(a(x)), b->weight); }
};
TORCH_MODULE(TiedNet);

TEST(DdpTied, AWeightUsedTwiceIsReducedOnceAndKeepsItsNames) {
  std::vector<TiedNet> nets;
  for (int i = 0; i < 3; ++i) {
    torch::manual_seed(5);
    nets.emplace_back();
  }
  TiedNet single = nets[2];
  torch::cross_entropy_loss(single->forward(Data(0).x), Data(0).y).backward();
  run_ranks(2, [&](Group& group) {
    DistributedDataParallel<TiedNet> ddp(group, nets[static_cast<size_t>(group.rank())]);
    EXPECT_EQ(ddp->named_parameters().keys(), single->named_parameters().keys());
    const Data data = Data(0).part(group.rank(), 2);
    torch::cross_entropy_loss(ddp.forward(data.x), data.y).backward();
    expect_close(ddp.module()->a->weight.grad(), single->a->weight.grad(), "tied weight");
    EXPECT_TRUE(ddp.module()->a->weight.is_same(ddp.module()->b->weight));
    EXPECT_EQ(ddp.stats().gradient_bytes, (36 + 6) * 8);
  });
}

// Both would leave gradients that are each rank's own, and nothing would show it.
TEST(DdpChanged, AParameterThatIsNotWhatWasWrappedIsRefusedByName) {
  for (const GradientMode mode : {GradientMode::kStaged, GradientMode::kArena, GradientMode::kBucketView}) {
    const std::vector<BranchNet> nets = make_branch_nets(2);
    run_ranks(2, [&](Group& group) {
      BranchDdp ddp(group, nets[static_cast<size_t>(group.rank())], {.gradients = mode});
      const Data data = Data(0).part(group.rank(), 2);
      branch_loss(ddp.forward(data.x, true), data).backward();
      ddp->to(torch::kFloat);
      const Error error = error_of([&] { ddp.forward(data.x.to(torch::kFloat), true); });
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr(str("rank ", group.rank(), "/2")), HasSubstr("'in.weight' has become f32[8, 6]"),
                        HasSubstr("384 bytes of f64"), HasSubstr("then wrap")));
    });
  }
}

TEST(DdpChanged, AParameterThatNeedsAGradientOnlyNowIsRefusedByName) {
  const std::vector<BranchNet> nets = make_branch_nets(2);
  run_ranks(2, [&](Group& group) {
    BranchDdp ddp(group, nets[static_cast<size_t>(group.rank())]);
    const Data data = Data(0).part(group.rank(), 2);
    branch_loss(ddp.forward(data.x, true), data).backward();
    ddp.module()->frozen->bias.set_requires_grad(true);
    const Error error = error_of([&] { ddp.forward(data.x, true); });
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(str("rank ", group.rank(), "/2")), HasSubstr("'frozen.bias' needed no gradient")));
    // It can go on as it was.
    ddp.module()->frozen->bias.set_requires_grad(false);
    ddp->zero_grad();
    branch_loss(ddp.forward(data.x, true), data).backward();
  });
}

}  // namespace
}  // namespace trireme

// Oracle: what every rank must see when something happens in the backward of one rank only: an error, or the average with zeros in place of
// what is missing; closed form. Never gradients of one parameter averaged with those of another, and never a wait for the time-out.
namespace trireme {
namespace {

using comm::Group;
using test::error_of;
using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

// Layers of equal size, so that buckets are told apart by nothing but their names. `give_up` makes the backward through the second throw;
// `skip` makes it give no gradient, not even zeros, for the second layer's weight.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            bool give_up, bool skip) {
    context->save_for_backward({x, weight});
    context->saved_data["give_up"] = give_up;
    context->saved_data["skip"] = skip;
    return x * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (context->saved_data["give_up"].toBool()) throw std::runtime_error("stopped on purpose");
    const auto saved = context->get_saved_variables();
    const bool skip = context->saved_data["skip"].toBool();
    return {gradients[0] * saved[1], skip ? at::Tensor() : gradients[0] * saved[0], at::Tensor(), at::Tensor()};
  }
};

struct ChainImpl : torch::nn::Module {
  std::vector<at::Tensor> weights;
  ChainImpl() {
    for (int i = 0; i < 4; ++i) weights.push_back(register_parameter(str("w", i), at::ones({4}) * (i + 1)));
  }
  at::Tensor forward(const at::Tensor& x, bool give_up, bool skip) {
    at::Tensor h = x * weights[0];
    h = Product::apply(h, weights[1], give_up, skip);
    return h * weights[2] * weights[3];
  }
};
TORCH_MODULE(Chain);
using ChainDdp = DistributedDataParallel<Chain>;

DdpOptions one_parameter_per_bucket() {
  DdpOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 1;
  return options;
}

TEST(DdpOneRank, ABackwardThatRepeatsBucketsIsAMismatchOnAllRanks) {
  run_ranks(2, [](Group& group) {
    ChainDdp ddp(group, Chain(), one_parameter_per_bucket());
    const at::Tensor x = at::ones({4});
    if (group.rank() == 0) {
      EXPECT_THROW(ddp.forward(x, true, false).sum().backward(), std::runtime_error);
    }
    const Error error = error_of([&] { ddp.forward(x, false, false).sum().backward(); });
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("(bucket 0)"), HasSubstr("(bucket 2)"), HasSubstr("the labels differ")));
  });
}

class DdpNoGradient : public testing::TestWithParam<GradientMode> {};

// d loss / d w1 = x w0 w2 w3 = 12 x on a rank that has it.
TEST_P(DdpNoGradient, OfOneRankCountsAsZeroWithDetectionOn) {
  run_ranks(2, [](Group& group) {
    DdpOptions options = one_parameter_per_bucket();
    options.find_unused_parameters = true;
    options.gradients = GetParam();
    ChainDdp ddp(group, Chain(), options);
    const at::Tensor x = at::full({4}, group.rank() + 1);
    for (int step = 0; step < 3; ++step) {
      ddp->zero_grad();
      ddp.forward(x, false, group.rank() == 1).sum().backward();
      EXPECT_TRUE(at::equal(ddp.module()->weights[1].grad(), at::full({4}, 6.0)));
      EXPECT_TRUE(at::equal(ddp.module()->weights[3].grad(), at::full({4}, 6.0 * 1.5)));
    }
    // On no rank: left alone, as in one process.
    ddp->zero_grad();
    ddp.forward(x, false, true).sum().backward();
    EXPECT_FALSE(ddp.module()->weights[1].grad().defined());
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, DdpNoGradient,
                         testing::Values(GradientMode::kStaged, GradientMode::kBucketView, GradientMode::kArena));

TEST(DdpOneRank, NoGradientIsNamedThereAndHoldsUpNobody) {
  run_ranks(2, [](Group& group) {
    ChainDdp ddp(group, Chain(), one_parameter_per_bucket());
    const at::Tensor x = at::ones({4});
    const auto backward = [&] { ddp.forward(x, false, group.rank() == 1).sum().backward(); };
    if (group.rank() == 0) {
      backward();
    } else {
      EXPECT_THAT(error_of(backward).what(), AllOf(HasSubstr("1 of 4 parameters got no gradient"), HasSubstr("'w1'")));
    }
    ddp->zero_grad();
    ddp.forward(x, false, false).sum().backward();
    EXPECT_TRUE(at::equal(ddp.module()->weights[1].grad(), at::full({4}, 12.0)));
  });
}

TEST(DdpOneRank, AGradientThatCannotBeReducedIsNamedThereAndHoldsUpNobody) {
  run_ranks(2, [](Group& group) {
    const auto sparse = torch::nn::EmbeddingOptions(8, 2).sparse(group.rank() == 1);
    DistributedDataParallel<torch::nn::Embedding> ddp(group, torch::nn::Embedding(sparse));
    const auto backward = [&] { ddp.forward(at::arange(3)).sum().backward(); };
    if (group.rank() == 0) {
      backward();
    } else {
      const Error error = error_of(backward);
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("the gradient of 'weight' is"), HasSubstr("(sparse)")));
    }
    comm::barrier(group);
  });
}

}  // namespace
}  // namespace trireme
