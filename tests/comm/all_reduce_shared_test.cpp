// Oracle: a second implementation. What all_reduce gives through staging, all_reduce_shared must give bit for bit, wherever on each rank
// the segments lie.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/str.h"
#include "comm/algorithms/communicator.h"
#include "comm/transport/inproc/inproc_memory.h"
#include "comm/transport/shm/shm_memory.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"

namespace trireme::comm {
namespace {

using trireme::testing::RankProcesses;
using trireme::testing::run_rank_threads;

constexpr size_t kPartBytes = 4 << 20;

CallInfo average(uint64_t number, size_t count) {
  CallInfo info;
  info.call = number;
  info.op = OpKind::kAllReduce;
  info.dtype = DType::kF32;
  info.reduce = ReduceKind::kAvg;
  info.count = count;
  info.num_dims = 1;
  info.dims[0] = static_cast<int64_t>(count);
  return info;
}

std::vector<float> contribution(int rank, size_t segment, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank * 100) + static_cast<unsigned>(segment));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2000) * 0.37F - 300.F;
  return values;
}

// Five segments: shared everywhere at offsets that differ by rank, shared on some ranks, empty, private, shared.
std::string compare_with_staged(Communicator& comm, const SharedParts& shared) {
  const int rank = comm.rank();
  const size_t counts[] = {1000, 33, 0, 70'001, 200'003};
  size_t total = 0;
  for (const size_t count : counts) total += count;
  std::vector<std::vector<float>> own(5), expected(5);
  std::vector<Segment> in_place, staged;
  size_t offset = 64 * static_cast<size_t>(rank);
  for (size_t s = 0; s < 5; ++s) {
    own[s] = expected[s] = contribution(rank, s, counts[s]);
    float* place = own[s].data();
    if (s == 0 || s == 4 || (s == 1 && rank % 2 == 0)) {
      place = reinterpret_cast<float*>(shared.part(rank) + offset);
      if (counts[s] > 0) std::memcpy(place, own[s].data(), counts[s] * sizeof(float));
      offset += (counts[s] * sizeof(float) + 63) / 64 * 64;
    }
    in_place.push_back({place, place, counts[s]});
    staged.push_back({expected[s].data(), expected[s].data(), counts[s]});
  }
  for (uint64_t round = 0; round < 3; ++round) {
    comm.all_reduce(average(2 * round + 1, total), staged);
    comm.all_reduce_shared(average(2 * round + 2, total), in_place, shared);
    for (size_t s = 0; s < 5; ++s) {
      if (counts[s] > 0 && std::memcmp(in_place[s].out, staged[s].out, counts[s] * sizeof(float)) != 0) {
        return str("segment ", s, " differs in round ", round);
      }
      // Ranks differ again before the next round; nobody may still be reading the old values.
      for (size_t i = 0; i < counts[s]; ++i) {
        static_cast<float*>(in_place[s].out)[i] += static_cast<float>(rank);
        expected[s][i] += static_cast<float>(rank);
      }
    }
  }
  return {};
}

class AllReduceShared : public ::testing::TestWithParam<int> {};

TEST_P(AllReduceShared, ThreadsGetWhatStagingGives) {
  const int n = GetParam();
  const SharedParts shared = make_inproc_parts(n, kPartBytes);
  for (const auto& outcome :
       run_rank_threads(n, {}, [&](Communicator& comm) { ASSERT_EQ(compare_with_staged(comm, shared), ""); })) {
    EXPECT_EQ(outcome.error, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllReduceShared, ::testing::Values(1, 2, 3, 4, 7));

TEST(AllReduceSharedProcs, ProcessesGetWhatStagingGives) {
  for (const int n : {2, 3}) {
    RankProcesses ranks(n, [n](int rank, rendezvous::Store& store, const auto&) {
      const auto comm = make_shm_communicator(store, store, rank, n, {});
      const std::shared_ptr<rendezvous::Store> borrowed(&store, [](rendezvous::Store* /*not ours*/) {});
      const auto other = rendezvous::make_prefix_store("parts", borrowed);
      const SharedParts shared = share_memory(*other, store, rank, n, kPartBytes, {});
      const std::string difference = compare_with_staged(*comm, shared);
      if (!difference.empty()) throw Error(ErrorKind::kInternal, difference);
    });
    for (const auto& outcome : ranks.join()) EXPECT_EQ(outcome.error, "");
  }
}

}  // namespace
}  // namespace trireme::comm
