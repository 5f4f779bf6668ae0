// Oracle: one process that sees the whole batch (f64, 1e-12), c10d::Reducer on our own backend, and messages' texts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cmath>

#include "base/str.h"
#include "parallel/ddp_oracle.h"
#include "support/run_ranks.h"
#include "trireme/trireme.h"

namespace trireme {
namespace {

using test::Data;
using test::error_of;
using test::expect_close;
using test::kSteps;
using test::make_mlp;
using test::make_mlps;
using test::Record;
using test::run_ranks;
using test::Sequential;
using test::train;
using test::train_one_process;
using testing::AllOf;
using testing::HasSubstr;
using Ddp = DistributedDataParallel<Sequential>;

class DdpParity : public testing::TestWithParam<int> {};

TEST_P(DdpParity, ThreeStepsEqualOneProcessOnTheWholeBatch) {
  const int size = GetParam();
  const Record want = train_one_process();
  const std::vector<Sequential> models = make_mlps(size);
  std::vector<Record> records(static_cast<size_t>(size));
  run_ranks(size, [&](Group& group) {
    Ddp ddp(group, models[static_cast<size_t>(group.rank())]);
    records[static_cast<size_t>(group.rank())] = train(ddp, group.rank(), size);
  });
  for (int step = 0; step < kSteps; ++step) {
    const auto s = static_cast<size_t>(step);
    double loss = 0;
    for (const Record& record : records) loss += record.losses.at(s) / size;
    EXPECT_NEAR(loss, want.losses[s], 1e-12);
    for (size_t p = 0; p < want.gradients[s].size(); ++p) {
      expect_close(records[0].gradients[s][p], want.gradients[s][p], str("step ", step, " gradient ", p));
    }
  }
  for (size_t p = 0; p < want.parameters.size(); ++p) {
    expect_close(records[0].parameters[p], want.parameters[p], str("parameter ", p));
    for (const Record& record : records) EXPECT_TRUE(at::equal(record.parameters[p], records[0].parameters[p]));
  }
}

TEST_P(DdpParity, EqualsC10dReducerOnOurBackend) {
  const int size = GetParam();
  const std::vector<Sequential> ours = make_mlps(size);
  std::vector<Sequential> theirs;
  for (int r = 0; r < size; ++r) theirs.push_back(make_mlp(7));
  run_ranks(size, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    Ddp ddp(group, ours[rank]);
    const std::vector<at::Tensor> params = theirs[rank]->parameters();
    std::vector<std::vector<size_t>> buckets = {{4, 5}, {0, 1, 2, 3}};
    c10d::Reducer reducer(params, buckets, group.c10d(), std::vector<bool>(params.size(), false), 25 << 20,
                          /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/false, {}, 1 << 20,
                          /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, {});
    for (int step = 0; step < 2; ++step) {
      const Data data = Data(step).part(group.rank(), size);
      ddp->zero_grad();
      torch::nn::functional::cross_entropy(ddp.forward(data.x), data.y).backward();
      theirs[rank]->zero_grad();
      reducer.prepare_for_forward();
      reducer.rebuild_buckets();
      const at::Tensor loss = torch::nn::functional::cross_entropy(theirs[rank]->forward(data.x), data.y);
      reducer.prepare_for_backward({});
      loss.backward();
      for (size_t p = 0; p < params.size(); ++p) {
        const at::Tensor mine = ddp.parameters()[p].grad();
        // c10d divides before the sum: exact for powers of two, else it rounds n times.
        if (size == 3) {
          expect_close(mine, params[p].grad(), str("gradient ", p));
        } else {
          EXPECT_TRUE(at::equal(mine, params[p].grad())) << "gradient " << p;
        }
      }
    }
  });
}

TEST_P(DdpParity, BucketSizesAndGradientModesDoNotChangeABit) {
  const int size = GetParam();
  struct Choice {
    int64_t first_bytes, bytes;
    GradientMode mode;
    int64_t num_buckets;
  };
  const Choice choices[] = {
      {1 << 20, 25 << 20, GradientMode::kStaged, 1}, {1, 1, GradientMode::kStaged, 6},  // one for each parameter
      {600, 2000, GradientMode::kStaged, 2},         {int64_t{1} << 40, int64_t{1} << 40, GradientMode::kStaged, 1},
      {1 << 20, 25 << 20, GradientMode::kArena, 1},  {1, 1, GradientMode::kArena, 6},
      {600, 2000, GradientMode::kArena, 2},          {1, 1, GradientMode::kBucketView, 6},
      {600, 2000, GradientMode::kBucketView, 2}};
  std::vector<std::vector<Record>> runs;
  for (const Choice& choice : choices) {
    const std::vector<Sequential> models = make_mlps(size);
    std::vector<Record> records(static_cast<size_t>(size));
    run_ranks(size, [&](Group& group) {
      DdpOptions options;
      options.first_bucket_bytes = choice.first_bytes;
      options.bucket_bytes = choice.bytes;
      options.gradients = choice.mode;
      Ddp ddp(group, models[static_cast<size_t>(group.rank())], options);
      records[static_cast<size_t>(group.rank())] = train(ddp, group.rank(), size);
      if (size == 1) return;
      EXPECT_EQ(ddp.stats().num_buckets, choice.num_buckets);
      EXPECT_EQ(ddp.stats().arena_bytes, choice.mode == GradientMode::kArena ? ddp.stats().gradient_bytes : 0);
    });
    runs.push_back(std::move(records));
  }
  for (const auto& records : runs) {
    for (size_t r = 0; r < records.size(); ++r) {
      EXPECT_EQ(records[r].losses, runs[0][r].losses);
      for (size_t p = 0; p < records[r].parameters.size(); ++p) {
        EXPECT_TRUE(at::equal(records[r].parameters[p], runs[0][0].parameters[p]));
      }
    }
  }
}

struct Scale : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", torch::ones({1}));
  at::Tensor forward(const at::Tensor& x) const { return weight * x; }  // no matrix product: that adds to a zero itself
};

// Oracle: closed form. d(w * -0)/dw is -0; (-0 + -0) / 2 is -0, and 0 + -0 is 0 (IEEE 754, rounding to nearest).
TEST(DdpGradientModes, ABucketViewMakesMinusZeroPlusZeroAndTheOthersKeepIt) {
  for (const GradientMode mode : {GradientMode::kStaged, GradientMode::kArena, GradientMode::kBucketView}) {
    run_ranks(2, [mode](Group& group) {
      const auto model = std::make_shared<Scale>();
      DdpOptions options;
      options.gradients = mode;
      DistributedDataParallel<std::shared_ptr<Scale>> ddp(group, model, options);
      ddp.forward(torch::full({1}, -0.0)).backward();
      const at::Tensor gradient = model->weight.grad();
      EXPECT_EQ(gradient.item<float>(), 0.0F);
      EXPECT_EQ(std::signbit(gradient.item<float>()), mode != GradientMode::kBucketView);
    });
  }
}

TEST_P(DdpParity, NoSyncMicroBatchesEqualOneBigBatch) {
  const int size = GetParam();
  const Record want = train_one_process();
  const std::vector<Sequential> models = make_mlps(size);
  run_ranks(size, [&](Group& group) {
    Ddp ddp(group, models[static_cast<size_t>(group.rank())]);
    for (int step = 0; step < 2; ++step) {
      const Data data = Data(0).part(group.rank(), size);
      const int64_t third = data.x.size(0) / 3;
      ddp->zero_grad();
      const auto backward = [&](int64_t micro) {
        const at::Tensor output = ddp.forward(data.x.narrow(0, micro * third, third));
        (torch::nn::functional::cross_entropy(output, data.y.narrow(0, micro * third, third)) / 3).backward();
      };
      const uint64_t before = ddp.stats().num_reductions;
      {
        const auto local = ddp.no_sync();
        backward(0);
        backward(1);
      }
      EXPECT_EQ(ddp.stats().num_reductions, before);
      backward(2);
      const std::vector<at::Tensor> params = ddp.parameters();
      for (size_t p = 0; p < params.size(); ++p) {
        expect_close(params[p].grad(), want.gradients[0][p], str("step ", step, " gradient ", p));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpParity, testing::Values(1, 2, 3, 4));

// Case D19.
TEST(DdpOptionsTest, WrongBucketSizesAreRefusedByName) {
  const Group world;
  for (const int64_t bytes : {int64_t{0}, int64_t{-1}, int64_t{1'000'000'000'000'000'000}}) {
    DdpOptions options;
    options.bucket_bytes = bytes;
    EXPECT_THAT(error_of([&] { const Ddp ddp(world, make_mlp(1), options); }).what(),
                AllOf(HasSubstr("'bucket_bytes'"), HasSubstr(str("'", bytes, "'")), HasSubstr("from 1 to")));
    options = {};
    options.first_bucket_bytes = bytes;
    EXPECT_THAT(error_of([&] { const Ddp ddp(world, make_mlp(1), options); }).what(),
                HasSubstr("'first_bucket_bytes'"));
  }
  DdpOptions options;
  for (const char* text : {"0", "-1", "1e18", "nan", "NaN", "", "true", "12x", "99999999999999999999"}) {
    EXPECT_THAT(error_of([&] { parallel::set_ddp_option(options, "bucket_bytes", text); }).what(),
                AllOf(HasSubstr("'bucket_bytes'"), HasSubstr(str("'", text, "'"))));
  }
  parallel::set_ddp_option(options, "bucket_bytes", "1");
  EXPECT_EQ(options.bucket_bytes, 1);
  parallel::set_ddp_option(options, "broadcast_buffers", "false");
  EXPECT_FALSE(options.broadcast_buffers);
  EXPECT_THAT(error_of([&] { parallel::set_ddp_option(options, "find_unused_parameters", "1"); }).what(),
              HasSubstr("'find_unused_parameters' is '1'; it must be true or false"));
  EXPECT_THAT(error_of([&] { parallel::set_ddp_option(options, "bucket_size", "1"); }).what(),
              HasSubstr("no option 'bucket_size'"));
}

TEST(DdpConstruction, TheFirstDifferenceBetweenModelsIsNamedOnEveryRank) {
  const auto build = [](int64_t hidden, torch::ScalarType type) {
    Sequential model(torch::nn::Linear(6, 4), torch::nn::Linear(4, hidden), torch::nn::Linear(hidden, 3));
    model->to(type);
    return model;
  };
  const std::vector<Sequential> models = {build(4, torch::kFloat), build(4, torch::kFloat), build(5, torch::kFloat)};
  run_ranks(3, [&](Group& group) {
    const Error error = error_of([&] { const Ddp ddp(group, models[static_cast<size_t>(group.rank())]); });
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 has parameter '1.weight' f32[4, 4]"),
                                    HasSubstr("rank 2 has parameter '1.weight' f32[5, 4]")));
  });
  const std::vector<Sequential> dtypes = {build(4, torch::kFloat), build(4, torch::kDouble)};
  run_ranks(2, [&](Group& group) {
    EXPECT_THAT(error_of([&] { const Ddp ddp(group, dtypes[static_cast<size_t>(group.rank())]); }).what(),
                AllOf(HasSubstr("f32[4, 6]"), HasSubstr("f64[4, 6]")));
  });
}

TEST(DdpBuffers, FollowRankZeroBeforeEachForwardAndOnRequest) {
  const auto build = [] { return Sequential(torch::nn::BatchNorm1d(6), torch::nn::Linear(6, 3)); };
  std::vector<Sequential> models;
  for (int i = 0; i < 3; ++i) {
    torch::manual_seed(2);
    models.push_back(build());
    models.back()->to(torch::kDouble);
  }
  // Rank 0's statistics alone, as one process would see its data.
  Sequential single = models[2];
  for (int step = 0; step < 3; ++step) single->forward(Data(step).part(0, 2).x);
  run_ranks(2, [&](Group& group) {
    Ddp ddp(group, models[static_cast<size_t>(group.rank())]);
    const auto buffers = ddp->buffers();
    for (int step = 0; step < 3; ++step) {
      const Data data = Data(step).part(group.rank(), 2);
      ddp->zero_grad();
      torch::cross_entropy_loss(ddp.forward(data.x), data.y).backward();
    }
    const bool differs = !at::equal(buffers[0], single->buffers()[0]);
    EXPECT_EQ(differs, group.rank() != 0);  // rank 1's last batch moved its own
    // In evaluation nothing is sent: rank 0 may evaluate alone.
    ddp->eval();
    if (group.rank() == 0) ddp.forward(Data(9).x);
    ddp.sync_buffers();
    for (size_t b = 0; b < buffers.size(); ++b) EXPECT_TRUE(at::equal(buffers[b], single->buffers()[b]));
  });
}

struct ThrowInBackward : torch::autograd::Function<ThrowInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*gradients*/) {
    throw std::runtime_error("stopped on purpose");
  }
};

TEST(DdpException, InTheMiddleOfBackwardLeavesItUsable) {
  const Record want = train_one_process();
  const std::vector<Sequential> models = make_mlps(2);
  run_ranks(2, [&](Group& group) {
    DdpOptions options;
    options.first_bucket_bytes = options.bucket_bytes = 1;  // some buckets are on their way when it happens
    Ddp ddp(group, models[static_cast<size_t>(group.rank())], options);
    const Data data = Data(0).part(group.rank(), 2);
    for (int round = 0; round < 3; ++round) {
      ddp.forward(data.x);
      at::Tensor h = ddp.module()[0]->as<torch::nn::Linear>()->forward(data.x);
      h = ThrowInBackward::apply(torch::tanh(h));
      for (size_t layer = 2; layer < 5; ++layer) {
        if (auto* linear = ddp.module()[layer]->as<torch::nn::Linear>()) h = linear->forward(h);
      }
      EXPECT_THROW(torch::cross_entropy_loss(h, data.y).backward(), std::runtime_error);
    }
    ddp->zero_grad();
    torch::cross_entropy_loss(ddp.forward(data.x), data.y).backward();
    const std::vector<at::Tensor> params = ddp.parameters();
    for (size_t p = 0; p < params.size(); ++p) {
      expect_close(params[p].grad(), want.gradients[0][p], str("gradient ", p));
    }
  });
}

TEST(DdpLayout, ChannelsLastParametersAndGradientsAreReducedInTheirOwnOrder) {
  const auto build = [] {
    torch::manual_seed(4);
    Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3)), torch::nn::ReLU(),
                     torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 3, 1)));
    model->to(torch::kDouble);
    for (at::Tensor& p : model->parameters()) {
      if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
    }
    return model;
  };
  const at::Tensor x = torch::sin(torch::arange(4 * 4 * 5 * 5, torch::kDouble)).reshape({4, 4, 5, 5});
  Sequential single = build();
  single->forward(x).square().mean().backward();
  const std::vector<Sequential> models = {build(), build()};
  run_ranks(2, [&](Group& group) {
    Ddp ddp(group, models[static_cast<size_t>(group.rank())]);
    ddp.forward(x.narrow(0, int64_t{2} * group.rank(), 2)).square().mean().backward();
    const std::vector<at::Tensor> params = ddp.parameters();
    for (size_t p = 0; p < params.size(); ++p) {
      expect_close(params[p].grad(), single->parameters()[p].grad(), str("gradient ", p));
    }
  });
}

}  // namespace
}  // namespace trireme
