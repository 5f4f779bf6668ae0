// Oracle: the contract of a meeting: who did not come is named, by global rank and by every rank that came; a death is named within a second,
// whether or not a launcher leaves a notice about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/str.h"
#include "comm/algorithms/communicator.h"
#include "comm/transport/shm/shm_memory.h"
#include "support/patience.h"
#include "support/rank_processes.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using trireme::test::kPatience;
using trireme::testing::RankProcesses;

enum class Meet { kGroup, kParts };

void meet(Meet what, rendezvous::Store& store, rendezvous::Store& root, int rank, int size,
          const CommunicatorOptions& options, const MeetingWatch& watch = {}) {
  if (what == Meet::kGroup) {
    (void)make_shm_communicator(store, root, rank, size, options, watch);
  } else {
    (void)share_memory(store, root, rank, size, 4096, options, watch);
  }
}

class ShmMeeting : public ::testing::TestWithParam<Meet> {};

TEST_P(ShmMeeting, TimeoutNamesWhoDidNotComeOnEveryRankThatCame) {
  struct Case {
    std::vector<int> absent;
    const char* text;
  };
  const int n = 4;
  for (const Case& row :
       {Case{{2}, "rank 12 did not come"}, Case{{0}, "rank 10 did not come"}, Case{{0, 3}, "ranks 10, 13 did not come"},
        Case{{1, 2, 3}, "ranks 11, 12, 13 did not come"}}) {
    RankProcesses ranks(n, [&](int rank, rendezvous::Store& store, const auto&) {
      const auto is_absent = [&](int r) { return std::count(row.absent.begin(), row.absent.end(), r) > 0; };
      if (is_absent(rank)) return;
      // All are there before anybody's time begins.
      store.set(str("ready/", rank), "1");
      for (int r = 0; r < n; ++r) {
        if (!is_absent(r)) (void)store.get(str("ready/", r), kPatience);
      }
      CommunicatorOptions options = {
          .group_name = "dp", .global_ranks = {10, 11, 12, 13}, .timeout = milliseconds(1000)};
      meet(GetParam(), store, store, rank, n, options);
    });
    const auto outcomes = ranks.join();
    for (int r = 0; r < n; ++r) {
      if (std::count(row.absent.begin(), row.absent.end(), r) > 0) continue;
      EXPECT_EQ(outcomes[r].kind, ErrorKind::kTimeout) << r;
      EXPECT_THAT(outcomes[r].error, HasSubstr(str("[comm.init] group 'dp' of 4: ", row.text, " within 1 s"))) << r;
    }
  }
}

// No death notice here: as under torchrun, mpirun or by hand.
TEST_P(ShmMeeting, OfAnotherGroupsMembersEndsWithinASecondOfADeath) {
  for (const int victim : {0, 1, 2}) {
    RankProcesses ranks(3, [&](int rank, rendezvous::Store& store, const auto& reach) {
      const auto world = make_shm_communicator(store, store, rank, 3, {});
      reach("world");
      if (rank == victim) {
        while (true) pause();
      }
      const std::shared_ptr<rendezvous::Store> borrowed(&store, [](rendezvous::Store* /*not ours*/) {});
      const auto inner = rendezvous::make_prefix_store("inner", borrowed);
      const std::vector<int> members = {0, 1, 2};
      meet(GetParam(), *inner, store, rank, 3, {.group_name = "inner", .global_ranks = {}},
           [&](const IsMissing& is_missing) {
             reach("waiting");
             world->require_members(members, is_missing, "inner");
           });
    });
    for (int r = 0; r < 3; ++r) ranks.await_mark(r, r == victim ? "world" : "waiting");
    ranks.kill(victim);
    const auto outcomes = ranks.join();
    for (int r = 0; r < 3; ++r) {
      if (r == victim) continue;
      EXPECT_EQ(outcomes[r].kind, ErrorKind::kPeerLost);
      EXPECT_THAT(outcomes[r].error, HasSubstr(str("group 'inner': rank ", victim, " died")));
      EXPECT_LT(outcomes[r].error_after_kill_s, 1.0);
    }
  }
}

TEST_P(ShmMeeting, OfAnotherGroupsMembersEndsWhenThatGroupBreaksOrAMemberLeavesIt) {
  for (const bool leaves : {false, true}) {
    RankProcesses ranks(3, [&](int rank, rendezvous::Store& store, const auto& reach) {
      const auto world = make_shm_communicator(store, store, rank, 3, {});
      const std::shared_ptr<rendezvous::Store> borrowed(&store, [](rendezvous::Store* /*not ours*/) {});
      const auto inner = rendezvous::make_prefix_store("inner", borrowed);
      const std::vector<int> members = {0, 1, 2};
      if (rank == 1) {
        (void)store.get("waiting", kPatience);
        if (!leaves) world->abort("out of memory");
        return;
      }
      meet(GetParam(), *inner, store, rank, 3, {.group_name = "inner", .global_ranks = {}},
           [&](const IsMissing& is_missing) {
             store.set("waiting", "1");
             world->require_members(members, is_missing, "inner");
           });
      reach("met");
    });
    const auto outcomes = ranks.join();
    for (const int r : {0, 2}) {
      EXPECT_EQ(outcomes[r].kind, ErrorKind::kPeerLost);
      EXPECT_THAT(outcomes[r].error,
                  HasSubstr(leaves ? "rank 1 ended or left group 'world'" : "rank 1 gave up: out of memory"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(For, ShmMeeting, ::testing::Values(Meet::kGroup, Meet::kParts),
                         [](const auto& info) { return info.param == Meet::kGroup ? "AGroup" : "Parts"; });

}  // namespace
}  // namespace trireme::comm
