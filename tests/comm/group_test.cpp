// Oracle: closed forms for values; for wrong use, the text of the message and that every rank gets it.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/headeronly/version.h>
#include <torch/csrc/distributed/c10d/Functional.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <atomic>
#include <latch>

#include "base/str.h"
#include "base/torch/torch_compat.h"
#include "comm/backends/backend_entry.h"
#include "profile/collective_trace.h"
#include "support/run_ranks.h"
#include "support/temp_dir.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/init.h"

namespace trireme {
namespace {

using comm::Group;
using test::error_of;
using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

TEST(Group, WorldOfOneReturnsItsInput) {
  const Group world;
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  at::Tensor x = at::arange(5, at::kFloat);
  comm::all_reduce_sum(world, x).wait();
  comm::all_reduce_avg(world, x).wait();
  comm::broadcast(world, x, 0).wait();
  comm::barrier(world);
  at::Tensor gathered = at::zeros({1, 5});
  comm::all_gather_base(world, gathered, x).wait();
  EXPECT_TRUE(at::equal(gathered[0], at::arange(5, at::kFloat)));
  EXPECT_TRUE(at::equal(x, at::arange(5, at::kFloat)));
}

TEST(Group, SubgroupsOfAnyOrderReduceAmongTheirMembersOnly) {
  run_ranks(4, [](Group& world) {
    const bool even = world.rank() % 2 == 0;
    // Members are named from the last to the first, so group ranks are reversed.
    const Group mine = world.subgroup(even ? std::vector<int>{2, 0} : std::vector<int>{3, 1});
    EXPECT_EQ(mine.size(), 2);
    EXPECT_EQ(mine.rank(), world.rank() < 2 ? 1 : 0);
    EXPECT_EQ(mine.global_ranks(), (even ? std::vector<int>{2, 0} : std::vector<int>{3, 1}));
    at::Tensor x = at::full({3}, world.rank(), at::kFloat);
    comm::all_reduce_sum(mine, x).wait();
    EXPECT_TRUE(at::equal(x, at::full({3}, even ? 2 : 4, at::kFloat)));
    at::Tensor y = at::full({1}, world.rank(), at::kLong);
    comm::broadcast(mine, y, 0).wait();
    EXPECT_EQ(y.item<int64_t>(), even ? 2 : 3);
    // The same members again make another group, which works beside the first.
    const Group again = world.subgroup(even ? std::vector<int>{2, 0} : std::vector<int>{3, 1});
    comm::all_reduce_sum(again, x).wait();
    comm::all_reduce_sum(mine, x).wait();
    EXPECT_TRUE(at::equal(x, at::full({3}, even ? 8 : 16, at::kFloat)));
    const Group alone = mine.subgroup({mine.rank()});
    comm::all_reduce_sum(alone, y).wait();
    EXPECT_EQ(y.item<int64_t>(), even ? 2 : 3);
  });
}

TEST(Group, SubgroupRefusesWrongLists) {
  const Group world;
  EXPECT_THAT(error_of([&] { (void)world.subgroup({}); }).what(), HasSubstr("at least one rank"));
  EXPECT_THAT(error_of([&] { (void)world.subgroup({0, 0}); }).what(), HasSubstr("ranks [0, 0]: a rank is named twice"));
  EXPECT_THAT(error_of([&] { (void)world.subgroup({0, 3}); }).what(), HasSubstr("ranks must be in 0..0"));
}

TEST(WrongUse, NamesWhatIsWrongAndLeavesTheGroupUsable) {
  const Group world;
  const at::Tensor transposed = at::zeros({2, 3}).t();
  EXPECT_THAT(error_of([&] { comm::all_reduce_sum(world, transposed).wait(); }).what(),
              AllOf(HasSubstr("[comm.all_reduce] rank 0/1"), HasSubstr("f32[3, 2] is not contiguous (strides [1, 3])"),
                    HasSubstr(".contiguous()")));
  EXPECT_THAT(error_of([&] { comm::all_reduce_avg(world, at::zeros({2}, at::kLong)).wait(); }).what(),
              HasSubstr("average of i64"));
  EXPECT_THAT(error_of([&] { comm::all_reduce_sum(world, at::zeros({2}, at::kComplexFloat)).wait(); }).what(),
              HasSubstr("dtype ComplexFloat is not moved"));
  EXPECT_THAT(error_of([&] { comm::broadcast(world, at::zeros({2}), 1).wait(); }).what(),
              HasSubstr("rank 1 was named as root; it must be in 0..0"));
  EXPECT_THAT(error_of([&] { comm::all_gather_base(world, at::zeros({3}), at::zeros({2})).wait(); }).what(),
              HasSubstr("output f32[3] must have as many elements as the input, f32[2]"));
  EXPECT_THAT(error_of([&] { comm::send(world, at::zeros({2}), 0).wait(); }).what(), HasSubstr("not this rank"));
  std::vector<at::Tensor> tensors = {at::zeros({2})};
  c10d::AllreduceOptions product;
  product.reduceOp = c10d::ReduceOp::PRODUCT;
  EXPECT_THAT(error_of([&] { world.c10d()->allreduce(tensors, product); }).what(),
              HasSubstr("the 'host' backend has no reduction PRODUCT; it has SUM, AVG, MIN and MAX"));
  const Error refused = error_of([&] { world.c10d()->reduce(tensors); });
  EXPECT_EQ(refused.kind(), ErrorKind::kUnsupported);
  EXPECT_THAT(refused.what(), HasSubstr("the backend 'host' has no reduce"));
  comm::all_reduce_sum(world, at::zeros({2})).wait();
}

TEST(Backends, UnavailableOnesSayWhy) {
  EXPECT_THAT(error_of([] { (void)comm::find_backend("nccl"); }).what(), HasSubstr("[comm.nccl] this build has no"));
  EXPECT_EQ(error_of([] { (void)comm::find_backend("mpi"); }).kind(), ErrorKind::kUnavailable);
  EXPECT_THAT(error_of([] { (void)comm::find_backend("gloo"); }).what(),
              HasSubstr("backend 'gloo' is unknown; known are host, nccl, mpi"));
}

TEST(TorchVersion, AnotherMinorIsRefusedWithBothVersions) {
  check_torch_version();
  EXPECT_EQ(compiled_torch_version(), loaded_torch_version());
  const uint64_t minor = uint64_t{1} << 48;
  EXPECT_THAT(error_of([&] { check_torch_version(TORCH_ABI_VERSION + minor); }).what(),
              HasSubstr(str("compiled against LibTorch ", TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR)));
  check_torch_version(TORCH_ABI_VERSION + (uint64_t{1} << 40));  // another patch is fine
}

// Case H01: sizes differ. Case H09: the message has both sides in full. Raised on every rank, at once.
void expect_mismatch(const std::function<comm::Work(Group&)>& call, const std::string& one, const std::string& other) {
  std::atomic<int> num_errors{0};
  run_ranks(3, [&](Group& group) {
    const Error error = error_of([&] { call(group).wait(); });
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch)
        << error.what();  // one that had waited for its peers would say kTimeout
    EXPECT_THAT(error.what(), AllOf(HasSubstr(one), HasSubstr(other), HasSubstr("world")));
    // The group stays unusable, with the same reason.
    EXPECT_EQ(error_of([&] { comm::all_reduce_sum(group, at::zeros({1})).wait(); }).kind(), ErrorKind::kMismatch);
    ++num_errors;
  });
  EXPECT_EQ(num_errors, 3);
}

TEST(Mismatch, UnlikeSizesAreNamedOnEveryRank) {
  expect_mismatch([](Group& group) { return comm::all_reduce_sum(group, at::zeros({group.rank() == 1 ? 200 : 100})); },
                  "f32[100]", "f32[200]");
  expect_mismatch(
      [](Group& group) { return comm::all_reduce_sum(group, at::zeros({group.rank() == 2 ? 409598 : 409600})); },
      "f32[409600]", "f32[409598]");
}

TEST(Mismatch, OperationDtypeShapeAndRootAreNamedOnEveryRank) {
  expect_mismatch(
      [](Group& group) {
        return group.rank() == 0 ? comm::all_reduce_sum(group, at::zeros({4}))
                                 : comm::broadcast(group, at::zeros({4}), 0);
      },
      "all_reduce", "broadcast");
  expect_mismatch(
      [](Group& group) {
        return comm::all_reduce_sum(group, at::zeros({4}, group.rank() == 2 ? at::kDouble : at::kFloat));
      },
      "f32[4]", "f64[4]");
  expect_mismatch(
      [](Group& group) {
        return comm::all_reduce_sum(group, group.rank() == 0 ? at::zeros({2, 3}) : at::zeros({3, 2}));
      },
      "f32[2, 3]", "f32[3, 2]");
  expect_mismatch([](Group& group) { return comm::broadcast(group, at::zeros({4}), group.rank() == 0 ? 0 : 1); },
                  "from 0", "from 1");
}

TEST(Mismatch, DimsBeyondTheFifthAreComparedToo) {
  expect_mismatch(
      [](Group& group) {
        return comm::all_reduce_sum(
            group, group.rank() == 1 ? at::zeros({2, 1, 1, 1, 1, 2, 3}) : at::zeros({2, 1, 1, 1, 1, 3, 2}));
      },
      "f32[2, 1, 1, 1, 1, ... (7 dims)]", "the shapes differ, in dims that are not shown");
}

// Ranks of the job are 2 and 1 here, of the group 0 and 1.
void run_pair(const std::function<void(const Group&)>& function) {
  run_ranks(3, [&](Group& world) {
    if (world.rank() != 0) function(world.subgroup({2, 1}, "pair"));
  });
}

TEST(Messages, OfASubgroupNameGlobalRanks) {
  run_pair([](const Group& group) {
    const bool first = group.rank() == 0;
    EXPECT_THAT(error_of([&] { comm::send(group, at::zeros({2}), 2).wait(); }).what(),
                HasSubstr(first ? "[comm.send] rank 2 (0/2 in its group): group 'pair': group rank 2 was named as peer"
                                : "[comm.send] rank 1/2: group 'pair': group rank 2 was named as peer"));
    const Error error = error_of([&] { comm::broadcast(group, at::zeros({4}), first ? 0 : 1).wait(); });
    EXPECT_THAT(error.what(),
                HasSubstr("rank 2 called broadcast f32[4] from 2, rank 1 called broadcast f32[4] from 1"));
  });
}

TEST(Messages, OfSendAndReceiveInASubgroupNameGlobalRanks) {
  run_pair([](const Group& group) {
    const Error error = error_of([&] {
      if (group.rank() == 0) {
        comm::send(group, at::zeros({4}), 1).wait();
        comm::barrier(group);  // waits until the receiver has seen the difference
      } else {
        comm::recv(group, at::zeros({5}), 0).wait();
      }
    });
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 2 called send f32[4] to 1"), HasSubstr("rank 1 called recv f32[5] from 2")));
  });
}

// Sends and receives are calls of their group, whatever thread they run on.
TEST(Trace, HasEachGroupOnceWithItsGlobalRanks) {
  const test::TempDir dir;
  run_ranks(
      3,
      [&](Group& world) {
        comm::barrier(world);
        if (world.rank() == 0) return;
        const Group group = world.subgroup({2, 1}, "pair");
        const at::Tensor x = at::zeros({4});
        (group.rank() == 0 ? comm::send(group, x, 1) : comm::recv(group, x, 0)).wait();
      },
      trireme::test::kPatience, dir.path());
  for (const int rank : {1, 2}) {
    const auto trace = profile::read_collective_trace(str(dir.path(), "/rank", rank, ".trace")).value();
    EXPECT_EQ(trace.groups, (std::vector<std::string>{"world", "pair"}));
    EXPECT_EQ(trace.group_ranks, (std::vector<std::vector<int>>{{0, 1, 2}, {2, 1}}));
    ASSERT_EQ(trace.records.size(), 2U);
    EXPECT_EQ(trace.records[0].group, 0);
    EXPECT_EQ(trace.records[1].group, 1);
  }
}

TEST(Timeout, OutsideOfOneMillisecondToOneYearIsRefused) {
  using std::chrono::milliseconds;
  for (const milliseconds wrong :
       {milliseconds::min(), milliseconds(-1), milliseconds(0), milliseconds(31'536'000'001), milliseconds::max()}) {
    const Error error = error_of([&] { (void)comm::init({.timeout = wrong}); });
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(error.what(),
                HasSubstr(str("a time-out of ", wrong.count(), " ms was asked for; it must be between 1 ms")));
    EXPECT_EQ(error_of([&] { (void)comm::make_thread_groups(2, wrong); }).kind(), ErrorKind::kInvalidArgument);
  }
  // The longest does not overflow a clock: a rank that waits gets the message, not an immediate time-out.
  run_ranks(
      2,
      [](Group& group) {
        at::Tensor x = at::zeros({3});
        if (group.rank() == 0) comm::send(group, at::ones({3}), 1).wait();
        if (group.rank() == 1) comm::recv(group, x, 0).wait();
        EXPECT_EQ(x.sum().item<float>(), group.rank() == 1 ? 3 : 0);
      },
      milliseconds(31'536'000'000));
}

TEST(Timeout, NamesTheLateRank) {
  std::latch others_there(2);  // how long a thread takes to start is not to count
  std::latch others_failed(2);
  run_ranks(
      3,
      [&](Group& group) {
        if (group.rank() == 2) {
          others_failed.wait();  // late until the others have given up
          return;
        }
        others_there.arrive_and_wait();
        const Error error = error_of([&] { comm::all_reduce_sum(group, at::zeros({4})).wait(); });
        EXPECT_EQ(error.kind(), ErrorKind::kTimeout) << error.what();
        EXPECT_THAT(error.what(), AllOf(HasSubstr("still waiting for rank 2."), HasSubstr("all_reduce")));
        others_failed.count_down();
      },
      std::chrono::milliseconds(1000));
}

TEST(PeerLost, ARankThatLeavesIsNamed) {
  run_ranks(3, [](Group& group) {
    comm::barrier(group);
    if (group.rank() == 1) return;  // leaves
    const Error error = error_of([&] { comm::all_reduce_sum(group, at::zeros({4})).wait(); });
    EXPECT_EQ(error.kind(), ErrorKind::kPeerLost) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("1"));
  });
}

TEST(LateRank, ResultsAreRightWhenOneRankComesMuchLater) {
  std::latch others_issued(2);
  run_ranks(3, [&](Group& group) {
    at::Tensor x = at::full({1000}, group.rank() + 1, at::kFloat);
    if (group.rank() == 0) others_issued.wait();
    comm::Work work = comm::all_reduce_sum(group, x);
    if (group.rank() != 0) others_issued.count_down();
    work.wait();
    EXPECT_TRUE(at::equal(x, at::full({1000}, 6, at::kFloat)));
  });
}

TEST(Future, OfAWorkCompletesWithTheTensors) {
  run_ranks(2, [](Group& group) {
    std::vector<at::Tensor> tensors = {at::full({8}, group.rank() + 1, at::kFloat)};
    auto work = group.c10d()->allreduce(tensors);
    auto future = work->getFuture();
    future->waitAndThrow();  // nobody waits on the Work: the progress thread executes it
    EXPECT_TRUE(at::equal(future->value().toTensorVector().at(0), at::full({8}, 3, at::kFloat)));
    EXPECT_TRUE(work->isCompleted());
    EXPECT_TRUE(work->isSuccess());
    auto finished = group.c10d()->allreduce(tensors);
    finished->wait();
    EXPECT_TRUE(at::equal(finished->getFuture()->value().toTensorVector().at(0), at::full({8}, 6, at::kFloat)));
  });
}

// Case: a callback is code like any other, whichever thread it runs on. Before, both of these waited for themselves for ever.
TEST(Future, ACallbackMayWaitForFurtherCallsOfItsGroup) {
  run_ranks(2, [](Group& group) {
    for (const bool progress_thread : {false, true}) {
      std::vector<at::Tensor> tensors = {at::full({8}, group.rank() + 1, at::kFloat)};
      at::Tensor more = at::full({8}, group.rank() + 10, at::kFloat);
      auto work = group.c10d()->broadcast(tensors);
      auto future = work->getFuture()->then(
          [&](c10::ivalue::Future&) {
            comm::all_reduce_sum(group, more).wait();
            return c10::IValue(true);
          },
          c10::BoolType::get());
      if (progress_thread) {
        future->waitAndThrow();
      } else {
        work->wait();
      }
      future->waitAndThrow();
      EXPECT_TRUE(at::equal(more, at::full({8}, 21, at::kFloat)));
    }
  });
}

TEST(Future, ACallbackMayDropTheLastGroupAndTheMessageSentStaysThere) {
  std::latch left(1);
  run_ranks(2, [&](Group& group) {
    std::vector<at::Tensor> tensors = {at::full({8}, 1 - group.rank(), at::kFloat)};
    if (group.rank() == 0) {
      auto future = group.c10d()->send(tensors, 1, 0)->getFuture();
      auto last = std::make_shared<Group>(std::move(group));
      future->addCallback([&left, last = std::move(last)](c10::ivalue::Future&) mutable {
        last.reset();
        left.count_down();
      });
      future->waitAndThrow();
      return;
    }
    left.wait();
    group.c10d()->recv(tensors, 0, 0)->wait();
    EXPECT_TRUE(at::equal(tensors[0], at::ones({8})));
  });
}

TEST(Functional, CollectivesWorkOnTheProcessGroup) {
  run_ranks(2, [](Group& group) {
    const std::string name = str("functional", group.rank());  // the registry is one for the process
    c10d::register_process_group(name, group.c10d());
    const at::Tensor x = at::full({4}, group.rank() + 1, at::kFloat);
    const at::Tensor sum = c10d::wait_tensor(c10d::all_reduce(x, "sum", name));
    EXPECT_TRUE(at::equal(sum, at::full({4}, 3, at::kFloat)));
    const at::Tensor all = c10d::wait_tensor(c10d::all_gather_into_tensor(x, 2, name));
    EXPECT_TRUE(at::equal(all, at::cat({at::full({4}, 1, at::kFloat), at::full({4}, 2, at::kFloat)})));
    c10d::unregister_process_group(name);
  });
}

}  // namespace
}  // namespace trireme
