// Oracle: one process that sees the whole batch (f64, 1e-12), computed by every rank for itself; and the contract that
// a death is named by every other rank within a second.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/str.h"
#include "comm/group_state.h"
#include "support/patience.h"
#include "support/rank_processes.h"
#include "support/temp_dir.h"
#include "trireme/trireme.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;
using trireme::testing::RankProcesses;

Group make_world(rendezvous::Store& store, int rank, int size) {
  at::set_num_threads(1);
  const std::shared_ptr<rendezvous::Store> borrowed(&store, [](rendezvous::Store* /*not ours*/) {});
  comm::GroupOptions options;
  options.rank = rank;
  options.global_ranks.resize(static_cast<size_t>(size));
  std::iota(options.global_ranks.begin(), options.global_ranks.end(), 0);
  options.timeout = trireme::test::kPatience;
  options.meeting = comm::make_store_meeting(borrowed, borrowed);
  return comm::make_group(options);
}

Sequential make_model(uint64_t seed) {
  torch::manual_seed(seed);
  Sequential model(Linear(6, 300), torch::nn::Tanh(), Linear(300, 300), torch::nn::Tanh(), Linear(300, 3));
  model->to(torch::kDouble);
  return model;
}

struct Batch {
  at::Tensor x, y;
  Batch(int step, int rank, int size) {
    constexpr int64_t kRows = 12;
    x = torch::sin(torch::arange(kRows * 6, torch::kDouble) * 0.37 + step).reshape({kRows, 6});
    y = torch::remainder(torch::arange(kRows) * 5 + step, 3);
    const int64_t rows = kRows / size;
    x = x.narrow(0, rank * rows, rows);
    y = y.narrow(0, rank * rows, rows);
  }
};

class DdpProcesses : public ::testing::TestWithParam<int> {};

TEST_P(DdpProcesses, ThreeStepsEqualOneProcess) {
  const int size = GetParam();
  RankProcesses ranks(size, [size](int rank, rendezvous::Store& store, const auto&) {
    const Group world = make_world(store, rank, size);
    Sequential single = make_model(1);
    DistributedDataParallel<Sequential> ddp(world, make_model(uint64_t{1} + static_cast<uint64_t>(rank)));
    torch::optim::SGD single_optimizer(single->parameters(), 0.1);
    torch::optim::SGD optimizer(ddp.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      const Batch whole(step, 0, 1);
      single_optimizer.zero_grad();
      torch::cross_entropy_loss(single->forward(whole.x), whole.y).backward();
      single_optimizer.step();
      const Batch mine(step, rank, size);
      optimizer.zero_grad();
      torch::cross_entropy_loss(ddp.forward(mine.x), mine.y).backward();
      optimizer.step();
      for (size_t p = 0; p < ddp.parameters().size(); ++p) {
        const at::Tensor got = ddp.parameters()[p];
        const at::Tensor want = single->parameters()[p];
        if (!at::allclose(got.grad(), want.grad(), 1e-12, 1e-14) || !at::allclose(got, want, 1e-12, 1e-14)) {
          throw Error(ErrorKind::kInternal, str("step ", step, ": parameter ", p, " or its gradient differs"));
        }
      }
    }
    if (ddp.stats().num_reductions != 3) throw Error(ErrorKind::kInternal, "not every step was reduced");
  });
  for (const auto& outcome : ranks.join()) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.signal, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, DdpProcesses, ::testing::Values(2, 3, 4));

TEST(DdpKill, ARankKilledWhileTrainingIsNamedByTheOthersWithinASecond) {
  for (const int victim : {0, 2}) {
    RankProcesses ranks(3, [](int rank, rendezvous::Store& store, const auto& reach) {
      const Group world = make_world(store, rank, 3);
      DistributedDataParallel<Sequential> ddp(world, make_model(1));
      torch::optim::SGD optimizer(ddp.parameters(), 0.1);
      for (int step = 0;; ++step) {
        const Batch mine(step % 5, rank, 3);
        optimizer.zero_grad();
        torch::cross_entropy_loss(ddp.forward(mine.x), mine.y).backward();
        optimizer.step();
        if (step == 10) reach("training");
      }
    });
    for (int rank = 0; rank < 3; ++rank) ranks.await_mark(rank, "training");
    ranks.kill(victim);
    const auto outcomes = ranks.join();
    for (int rank = 0; rank < 3; ++rank) {
      const auto& outcome = outcomes[static_cast<size_t>(rank)];
      if (rank == victim) {
        EXPECT_EQ(outcome.signal, SIGKILL);
        continue;
      }
      EXPECT_EQ(outcome.kind, ErrorKind::kPeerLost) << outcome.error;
      EXPECT_THAT(outcome.error, HasSubstr(str("rank ", victim)));
      EXPECT_LT(outcome.error_after_kill_s, 1.0);
    }
  }
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}
/// Of malloc, in use.
int64_t live_bytes() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Oracle: nothing is kept from step to step. After a warm-up of 500 steps the process grows by less than 1 MiB (that is 700 bytes a step) in the
// 1,500 that follow, and what it has from malloc by less than 64 KiB: 44 bytes a step, so a single object that was kept would show.
TEST(DdpMemory, TwoThousandStepsLeaveNothingBehind) {
  for (const GradientMode mode : {GradientMode::kArena, GradientMode::kStaged, GradientMode::kBucketView}) {
    RankProcesses ranks(2, [mode](int rank, rendezvous::Store& store, const auto&) {
      const Group world = make_world(store, rank, 2);
      DdpOptions options;
      options.gradients = mode;
      DistributedDataParallel<Sequential> ddp(world, make_model(1), options);
      torch::optim::SGD optimizer(ddp.parameters(), 0.01);
      int64_t resident = 0;
      int64_t live = 0;
      for (int step = 0; step < 2000; ++step) {
        if (step == 500) {
          resident = resident_bytes();
          live = live_bytes();
        }
        const Batch mine(step % 5, rank, 2);
        optimizer.zero_grad();
        torch::cross_entropy_loss(ddp.forward(mine.x), mine.y).backward();
        optimizer.step();
      }
      const int64_t more_resident = resident_bytes() - resident;
      const int64_t more_live = live_bytes() - live;
      if (rank == 0)
        std::fprintf(stderr, "mode %d: resident %+lld bytes, live %+lld bytes\n", static_cast<int>(mode),
                     static_cast<long long>(more_resident), static_cast<long long>(more_live));
      if (more_resident > (1 << 20) || more_live > (64 << 10)) {
        throw Error(ErrorKind::kInternal, str("mode ", static_cast<int>(mode), ": resident memory grew by ",
                                              more_resident, " bytes in 1,500 steps, malloc's by ", more_live));
      }
    });
    for (const auto& outcome : ranks.join()) {
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(outcome.signal, 0);
    }
  }
}

struct Output {
  std::string text;
  int status = -1;
};
Output run(const std::string& command) {
  Output output;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer{};
  while (const size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) output.text.append(buffer.data(), got);
  output.status = pclose(pipe);
  return output;
}

float loss_after(const std::string& text, const std::string& what) {
  const size_t at = text.find(what + " loss ");
  if (at == std::string::npos) return NAN;
  return std::stof(text.substr(at + what.size() + 6));
}

TEST(HelloDdp, TheFifteenLineProgramTrainsOnTwoRanksAndAlone) {
  const std::string bin = TRIREME_BIN_DIR;
  const test::TempDir dir;
  const std::string run_dir = dir / "run";
  const Output two = run(bin + "/trireme run --nproc-per-node 2 --run-dir " + run_dir + " " + bin + "/hello_ddp");
  EXPECT_EQ(two.status, 0);
  for (const int rank : {0, 1}) {
    const std::string who = str("rank ", rank, " step ");
    EXPECT_GT(loss_after(two.text, who + "0"), 0.03F) << two.text;
    EXPECT_LT(loss_after(two.text, who + "300"), 0.01F) << two.text;
  }
  EXPECT_TRUE(std::filesystem::exists(run_dir + "/trace/rank0.trace"));
  const Output alone = run(bin + "/hello_ddp");
  EXPECT_EQ(alone.status, 0);
  EXPECT_LT(loss_after(alone.text, "rank 0 step 300"), 0.01F) << alone.text;
}

}  // namespace
}  // namespace trireme
