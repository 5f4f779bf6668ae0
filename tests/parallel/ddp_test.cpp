// Oracle: one process that sees the whole batch (f64, 1e-12), c10d::Reducer on our own backend, and messages' texts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cmath>

#include "base/str.h"
#include "support/run_ranks.h"
#include "trireme/trireme.h"

namespace trireme {
namespace {

using test::error_of;
using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Sequential = torch::nn::Sequential;
using Ddp = DistributedDataParallel<Sequential>;

constexpr int64_t kBatch = 36;  // divisible by 1 to 4 ranks, and that by 3 micro-batches
constexpr int kSteps = 3;

// Built on the calling thread only: rank threads share the default generator.
Sequential make_mlp(uint64_t seed) {
  torch::manual_seed(seed);
  Sequential model(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 16), torch::nn::ReLU(),
                   torch::nn::Linear(16, 3));
  model->to(torch::kDouble);
  return model;
}
std::vector<Sequential> make_mlps(int size) {
  std::vector<Sequential> models;
  // Different by rank: construction must replace all by rank 0's.
  for (int r = 0; r < size; ++r) models.push_back(make_mlp(uint64_t{7} + static_cast<uint64_t>(r)));
  return models;
}

struct Data {
  at::Tensor x, y;
  explicit Data(int step, int64_t rows = kBatch) {
    // No random numbers: rank threads would share the generator.
    x = torch::sin(torch::arange(rows * 6, torch::kDouble) * 0.37 + step).reshape({rows, 6});
    y = torch::remainder(torch::arange(rows) * 5 + step, 3);
  }
  Data part(int rank, int size) const {
    Data mine = *this;
    const int64_t rows = x.size(0) / size;
    mine.x = x.narrow(0, rank * rows, rows);
    mine.y = y.narrow(0, rank * rows, rows);
    return mine;
  }
};

struct Record {
  std::vector<double> losses;
  std::vector<std::vector<at::Tensor>> gradients;  // by step
  std::vector<at::Tensor> parameters;              // after the last step
};

template <typename Model>
Record train(Model& model, int rank, int size) {
  Record record;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    const Data data = Data(step).part(rank, size);
    optimizer.zero_grad();
    at::Tensor output;
    if constexpr (std::is_same_v<Model, Sequential>) {
      output = model->forward(data.x);
    } else {
      output = model.forward(data.x);
    }
    const at::Tensor loss = torch::nn::functional::cross_entropy(output, data.y);
    loss.backward();
    record.losses.push_back(loss.item<double>());
    record.gradients.emplace_back();
    for (const at::Tensor& p : model->parameters()) record.gradients.back().push_back(p.grad().clone());
    optimizer.step();
  }
  for (const at::Tensor& p : model->parameters()) record.parameters.push_back(p.detach().clone());
  return record;
}

Record train_one_process() {
  Sequential model = make_mlp(7);
  return train(model, 0, 1);
}

void expect_close(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  EXPECT_TRUE(at::allclose(got, want, 1e-12, 1e-14)) << what << ": " << (got - want).abs().max().item<double>();
}

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

// One step mixes gradients in the arena with others, and which are which differs by rank. Equal to staging bit for bit.
TEST(DdpArena, MixesWithGradientsMadeElsewhere) {
  std::vector<std::vector<at::Tensor>> results;
  for (const GradientMode mode : {GradientMode::kStaged, GradientMode::kArena}) {
    const std::vector<Sequential> models = make_mlps(3);
    std::vector<at::Tensor> gradients;
    run_ranks(3, [&](Group& group) {
      DdpOptions options;
      options.gradients = mode;
      Ddp ddp(group, models[static_cast<size_t>(group.rank())], options);
      std::vector<at::Tensor> params = ddp.parameters();
      for (int step = 0; step < 3; ++step) {
        const Data data = Data(step).part(group.rank(), 3);
        ddp->zero_grad();
        // A .grad that exists is added to where it is: in ordinary memory.
        for (size_t p = 0; p < params.size(); ++p) {
          if (p % 3 == static_cast<size_t>(group.rank())) params[p].mutable_grad() = at::zeros_like(params[p]);
        }
        torch::cross_entropy_loss(ddp.forward(data.x), data.y).backward();
      }
      if (mode == GradientMode::kArena) {
        EXPECT_GT(ddp.stats().arena_bytes, 0);
        EXPECT_LT(ddp.stats().arena_bytes, ddp.stats().gradient_bytes);
      }
      if (group.rank() == 1) {
        for (const at::Tensor& p : params) gradients.push_back(p.grad().clone());
      }
    });
    results.push_back(std::move(gradients));
  }
  for (size_t p = 0; p < results[0].size(); ++p) EXPECT_TRUE(at::equal(results[0][p], results[1][p])) << p;
}

// A gradient that a user keeps stays as it is: its block is not used again, and outlives the DDP object.
TEST(DdpArena, GradientsThatSomebodyKeepsStayUntouched) {
  const std::vector<Sequential> models = make_mlps(2);
  std::vector<at::Tensor> kept(2), copies(2);
  run_ranks(2, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    DdpOptions options;
    options.gradients = GradientMode::kArena;
    Ddp ddp(group, models[rank], options);
    for (int step = 0; step < 5; ++step) {
      const Data data = Data(step).part(group.rank(), 2);
      ddp->zero_grad();
      torch::cross_entropy_loss(ddp.forward(data.x), data.y).backward();
      if (step == 0) {
        kept[rank] = ddp.parameters()[0].grad();
        copies[rank] = kept[rank].clone();
      }
    }
    EXPECT_EQ(ddp.stats().arena_bytes, ddp.stats().gradient_bytes);  // a spare block took its place
  });
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(at::equal(kept[rank], copies[rank]));
  kept.clear();
}

// The allocator stands aside outside backward, after one that threw too.
TEST(DdpArena, ServesOnlyTheBackwardUnderWay) {
  const std::vector<Sequential> models = make_mlps(2);
  run_ranks(2, [&](Group& group) {
    DdpOptions options;
    options.gradients = GradientMode::kArena;
    Ddp ddp(group, models[static_cast<size_t>(group.rank())], options);
    const Data data = Data(0).part(group.rank(), 2);
    ddp->zero_grad();
    torch::cross_entropy_loss(ddp.forward(data.x), data.y).backward();
    const void* in_arena = ddp.parameters()[0].grad().data_ptr();
    ddp->zero_grad();
    const auto outside = [&] { return at::empty({16, 6}, torch::kDouble).data_ptr() != in_arena; };
    EXPECT_TRUE(outside());
    {
      at::Tensor output = ddp.forward(data.x);
      output.register_hook([](const at::Tensor& /*gradient*/) { throw std::runtime_error("stopped on purpose"); });
      EXPECT_THROW(torch::cross_entropy_loss(output, data.y).backward(), std::runtime_error);
    }
    EXPECT_TRUE(outside());
    torch::cross_entropy_loss(ddp.forward(data.x), data.y).backward();
    EXPECT_EQ(ddp.parameters()[0].grad().data_ptr(), in_arena);  // last in, first out: addresses repeat
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
