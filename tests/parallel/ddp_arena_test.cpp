// Oracle: staging, bit for bit; addresses, which say where a gradient was made. Gradients in the arena beside others, kept, and after an
// exception.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/str.h"
#include "parallel/ddp_oracle.h"
#include "support/run_ranks.h"
#include "trireme/trireme.h"

namespace trireme {
namespace {

using test::Data;
using test::make_mlps;
using test::run_ranks;
using test::Sequential;
using Ddp = DistributedDataParallel<Sequential>;

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

// The shared memory is communication's, but for what gradients occupy of it: the sum of both is the same before and after backward.
TEST(DdpArena, TheMemoryTrackerCountsGradientsInSharedMemoryOnce) {
  const std::vector<Sequential> models = make_mlps(2);
  int64_t model_bytes = 0;
  memory::MemoryTracker tracker;
  for (const Sequential& model : models) tracker.add_module(*model);
  for (const at::Tensor& parameter : models[0]->parameters()) model_bytes += static_cast<int64_t>(parameter.nbytes());
  memory::MemoryReport before;
  memory::MemoryReport after;
  run_ranks(2, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    DdpOptions options;
    options.gradients = GradientMode::kArena;
    Ddp ddp(group, models[rank], options);
    comm::barrier(group);
    if (rank == 0) before = tracker.report();
    comm::barrier(group);
    const Data data = Data(0).part(group.rank(), 2);
    torch::cross_entropy_loss(ddp.forward(data.x), data.y).backward();
    EXPECT_EQ(ddp.stats().arena_bytes, ddp.stats().gradient_bytes);
    comm::barrier(group);
    if (rank == 0) after = tracker.report();
    comm::barrier(group);
    ddp->zero_grad();
  });
  using memory::Category;
  EXPECT_EQ(after.current[Category::kParameters], 2 * model_bytes);
  EXPECT_EQ(after.current[Category::kGradients], 2 * model_bytes);
  EXPECT_GT(after.current[Category::kCommunication], 0);
  EXPECT_EQ(before.current[Category::kGradients], 0);
  EXPECT_EQ(before.current[Category::kCommunication],
            after.current[Category::kCommunication] + after.current[Category::kGradients]);
  EXPECT_EQ(tracker.report().current[Category::kCommunication], 0);
}

}  // namespace
}  // namespace trireme
