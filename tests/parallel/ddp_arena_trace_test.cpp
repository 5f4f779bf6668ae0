// Oracle: staging, bit for bit; addresses, which say where a gradient was made. Gradients in the arena beside others, kept, and after an
// exception.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/str.h"
#include "comm/transport/call_info.h"
#include "parallel/ddp_oracle.h"
#include "profile/collective_trace.h"
#include "support/count_own_allocations.h"
#include "support/patience.h"
#include "support/run_ranks.h"
#include "support/temp_dir.h"
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

// Oracle: the collective trace, and counts of allocations made by the reducer's own code.

namespace trireme {
namespace {

using test::run_ranks;

// Backward stops here until `g_gate` says that it may go on; every rank then notes the time.
thread_local std::function<void()> g_gate;
struct Gate : torch::autograd::Function<Gate> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    if (g_gate) g_gate();
    return gradients;
  }
};

struct GatedNetImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  GatedNetImpl() {
    first = register_module("first", torch::nn::Linear(16, 32));
    second = register_module("second", torch::nn::Linear(32, 32));
    third = register_module("third", torch::nn::Linear(32, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return third(torch::relu(second(Gate::apply(first(x))))); }
};
TORCH_MODULE(GatedNet);

uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

std::vector<profile::TraceRecord> buckets_of_step(const std::string& path, uint32_t step) {
  std::vector<profile::TraceRecord> found;
  const Result<profile::TraceSnapshot> trace = profile::read_collective_trace(path);
  for (const profile::TraceRecord& record : trace.value().records) {
    if (record.step == step && std::string(record.label).starts_with("bucket ") &&
        record.op == static_cast<uint8_t>(comm::OpKind::kAllReduce)) {
      found.push_back(record);
    }
  }
  return found;
}

// Backward cannot reach the first layer before the trace shows every earlier bucket as started; without overlap this
// would never come true. Nothing here depends on speed.
TEST(DdpOverlap, EveryBucketButTheLastStartsBeforeTheFirstLayersGradientIsReady) {
  const test::TempDir folder;
  std::vector<GatedNet> nets;
  for (int i = 0; i < 2; ++i) nets.emplace_back();
  constexpr uint32_t kStep = 41;
  run_ranks(
      2,
      [&](Group& group) {
        const std::string path = folder / str("rank", group.rank(), ".trace");
        DdpOptions options;
        options.first_bucket_bytes = int64_t{4} * (32 * 4 + 4);
        options.bucket_bytes = int64_t{4} * (32 * 32 + 32);
        DistributedDataParallel<GatedNet> ddp(group, nets[static_cast<size_t>(group.rank())], options);
        const at::Tensor x = at::ones({8, 16});
        for (int warm_up = 0; warm_up < 2; ++warm_up) {
          ddp->zero_grad();
          ddp.forward(x).sum().backward();
        }
        ASSERT_EQ(ddp.stats().num_buckets, 3);
        comm::barrier(group);
        if (group.rank() == 0) set_step(kStep);
        comm::barrier(group);
        bool overlapped = false;
        g_gate = [&] {
          const auto deadline = std::chrono::steady_clock::now() + test::kPatience / 2;
          while (!overlapped && std::chrono::steady_clock::now() < deadline) {
            const auto records = buckets_of_step(path, kStep);
            overlapped = records.size() == 2 && records[1].started_ns != 0;
            std::this_thread::yield();
          }
        };
        ddp->zero_grad();
        uint64_t ready = 0;
        ddp.module()->first->weight.register_hook([&ready](const at::Tensor& /*gradient*/) { ready = now_ns(); });
        ddp.forward(x).sum().backward();
        g_gate = {};
        EXPECT_TRUE(overlapped);
        const auto records = buckets_of_step(path, kStep);
        ASSERT_EQ(records.size(), 3U);
        EXPECT_LT(records[0].started_ns, ready);
        EXPECT_LT(records[1].started_ns, ready);
        EXPECT_GT(records[2].queued_ns, ready);
        for (const auto& record : records)
          EXPECT_EQ(record.state, static_cast<uint32_t>(profile::CallState::kFinished));
      },
      test::kPatience, folder.path());
  set_step(0);  // it is the process's: a repeated test must not find its own warm-up under this step
}

TEST(DdpAllocations, NoneByOurCodeAfterTheThirdStep) {
  std::vector<GatedNet> nets;
  for (int i = 0; i < 2; ++i) nets.emplace_back();
  std::atomic<int64_t> after_three{-1}, at_end{-1};
  run_ranks(2, [&](Group& group) {
    DdpOptions options;
    options.first_bucket_bytes = options.bucket_bytes = 1000;
    DistributedDataParallel<GatedNet> ddp(group, nets[static_cast<size_t>(group.rank())], options);
    const at::Tensor x = at::ones({8, 16});
    for (int step = 0; step < 20; ++step) {
      ddp->zero_grad();
      ddp.forward(x).sum().backward();
      if (step == 2) {
        comm::barrier(group);
        if (group.rank() == 0) after_three = test::num_own_allocations.load();
        comm::barrier(group);
      }
    }
    comm::barrier(group);
    if (group.rank() == 0) at_end = test::num_own_allocations.load();
    comm::barrier(group);
  });
  EXPECT_GT(after_three, 0);  // the counter works: the first steps do allocate
  EXPECT_EQ(at_end - after_three, 0);
}

}  // namespace
}  // namespace trireme
