// Oracle: what every rank must see when something happens in the backward of one rank only: an error, or the average with zeros in place of
// what is missing; closed form. Never gradients of one parameter averaged with those of another, and never a wait for the time-out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "base/str.h"
#include "support/run_ranks.h"
#include "trireme/trireme.h"

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
