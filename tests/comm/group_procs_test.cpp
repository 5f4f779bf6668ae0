// Oracle: the contract that a death is named within a second, here while a sub-group or a gradient arena is being made, with no launcher
// that would tell of it.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/str.h"
#include "comm/group_state.h"
#include "support/rank_processes.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using trireme::testing::RankProcesses;

TEST(GroupProcs, DeathWhileASubgroupOrAnArenaIsMadeIsNamed) {
  for (const bool arena : {false, true}) {
    RankProcesses ranks(3, [&](int rank, rendezvous::Store& store, const auto& reach) {
      at::set_num_threads(1);
      const std::shared_ptr<rendezvous::Store> borrowed(&store, [](rendezvous::Store* /*not ours*/) {});
      comm::GroupOptions options;
      options.rank = rank;
      options.global_ranks = {0, 1, 2};
      options.meeting = comm::make_store_meeting(borrowed, borrowed);
      const comm::Group world = comm::make_group(options);
      reach("world");
      if (rank == 1) {
        while (true) pause();
      }
      if (arena) {
        (void)comm::share_memory(world, 4096);
      } else {
        (void)world.subgroup({2, 1, 0}, "inner");
      }
    });
    for (int r = 0; r < 3; ++r) ranks.await_mark(r, "world");
    ranks.kill(1);
    const auto outcomes = ranks.join();
    for (const int r : {0, 2}) {
      EXPECT_EQ(outcomes[r].kind, ErrorKind::kPeerLost);
      EXPECT_THAT(outcomes[r].error, HasSubstr(str("group '", arena ? "world" : "inner", "': rank 1 died")));
      EXPECT_LT(outcomes[r].error_after_kill_s, 1.0);
    }
  }
}

}  // namespace
}  // namespace trireme
