// Oracle: exhaustive search. sync.h itself runs over atomics that enumerate what its memory orders permit
// (support/model_check/memory.h says which part of the C++20 memory model that is): no execution may race, read a stale
// value or sleep for ever. To show that the search would see it: every memory order of SyncOrders weakened on its own,
// and every rule of the protocol broken on its own, must fail.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "comm/sync_programs.h"

namespace trireme::comm {
namespace {

using model::Explorer;
using model::Outcome;
using model::PlainData;
using model::RacyData;

struct NamedProgram {
  std::string name;
  std::function<std::unique_ptr<model::Program>()> make;
};
// NOLINTNEXTLINE(readability-identifier-naming): gtest looks for this name
void PrintTo(const NamedProgram& program, std::ostream* out) { *out << program.name; }

template <typename P, typename... Args>
NamedProgram named(std::string name, Args... args) {
  return {std::move(name), [args...] { return std::make_unique<P>(args...); }};
}

constexpr auto kSpin = Waiting::kSpin;
constexpr auto kSleep = Waiting::kSleep;

/// What must hold in every execution, of the protocol as it is.
std::vector<NamedProgram> programs() {
  return {
      named<Phases<PlainData>>("2 ranks, 4 phases, spin or sleep", PhasesShape{.phases = 4}),
      named<Phases<PlainData>>("2 ranks, 4 phases, sleep only", PhasesShape{.phases = 4, .waiting = kSleep}),
      named<Phases<PlainData>>("2 ranks, 4 phases, one flag per rank", PhasesShape{.phases = 4, .lanes = 1}),
      named<Phases<PlainData>>("3 ranks, 4 phases, spin", PhasesShape{.ranks = 3, .phases = 4, .waiting = kSpin}),
      named<Phases<PlainData>>("3 ranks, 1 phase, sleep only", PhasesShape{.ranks = 3, .phases = 1, .waiting = kSleep}),
      named<Phases<PlainData>>("3 ranks, 2 phases, one sleeps, two spin",
                               PhasesShape{.ranks = 3, .phases = 2, .waiting = kSleep, .sleepers = 1}),
      named<ReduceInPlace<PlainData>>("3 ranks, 2 reductions in place, spin", ReduceShape{}),
      named<ReduceShared<PlainData>>("3 ranks, 2 reductions of shared gradients", SharedShape{}),
      named<PairExchangeProgram<PlainData>>("pair, 2 calls of 2 chunks, spin", PairShape{}),
      named<PairExchangeProgram<PlainData>>("pair, 2 calls of 1 chunk, spin or sleep",
                                            PairShape{.chunks = 1, .waiting = Waiting::kEither}),
      named<PairExchangeProgram<PlainData>>("pair, 2 calls of 2 chunks, sleep only", PairShape{.waiting = kSleep}),
      named<PairExchangeProgram<PlainData>>("pair, 3 calls of 1 chunk, spin", PairShape{.calls = 3, .chunks = 1}),
      named<Ring<PlainData>>("send/recv, 4 pieces, spin or sleep", RingShape{}),
      named<Ring<PlainData>>("send/recv, 4 pieces, sleep only", RingShape{.waiting = kSleep}),
      named<Poison<PlainData>>("poison: two claim, three read"),
      named<Phases<RacyData>>("2 ranks, 3 phases, values", PhasesShape{.waiting = kSpin}),
      named<Phases<RacyData>>("3 ranks, 2 phases, values", PhasesShape{.ranks = 3, .phases = 2, .waiting = kSpin}),
      named<PairExchangeProgram<RacyData>>("pair, 2 calls of 2 chunks, values", PairShape{}),
      named<Ring<RacyData>>("send/recv, 3 pieces, values", RingShape{.pieces = 3}),
      named<Poison<RacyData>>("poison, values"),
  };
}

/// Small ones that show each kind of failure: a race, a stale value, a lost wake.
std::vector<NamedProgram> revealing_programs() {
  return {
      named<Phases<PlainData>>("2 ranks, 2 phases, spin", PhasesShape{.phases = 2, .waiting = kSpin}),
      named<Phases<RacyData>>("2 ranks, 2 phases, values", PhasesShape{.phases = 2, .waiting = kSpin}),
      named<Phases<PlainData>>("2 ranks, 1 phase, sleep", PhasesShape{.phases = 1, .waiting = kSleep}),
      named<Ring<PlainData>>("send/recv, 3 pieces", RingShape{.pieces = 3}),
      named<Poison<PlainData>>("poison"),
      named<Poison<RacyData>>("poison, values"),
  };
}

void print_row(const std::string& name, const std::string& program, const Outcome& got) {
  std::printf("%-42s %-28s %s\n", name.c_str(), program.c_str(), got.ok ? "holds" : got.failure.c_str());
}

class SyncModelProgram : public testing::TestWithParam<NamedProgram> {};

TEST_P(SyncModelProgram, NoExecutionRacesReadsStaleOrSleepsForEver) {
  const NamedProgram& program = GetParam();
  const Outcome got = Explorer::explore(*program.make());
  std::printf("              %s: %llu executions, %llu states, %llu steps\n", program.name.c_str(),
              static_cast<unsigned long long>(got.executions), static_cast<unsigned long long>(got.states),
              static_cast<unsigned long long>(got.steps));
  EXPECT_TRUE(got.ok) << got.failure << "\n" << got.execution;
  EXPECT_GT(got.executions, 0U);
}

std::string test_name(const testing::TestParamInfo<NamedProgram>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Programs, SyncModelProgram, testing::ValuesIn(programs()), test_name);

TEST(SyncModel, EveryMemoryOrderIsNeeded) {
  struct Weakened {
    const char* name;
    std::memory_order* order;
    std::memory_order weaker;
    const char* fails_with;
  };
  using mo = std::memory_order;
  const std::vector<Weakened> table = {
      {"kPublish: seq_cst -> release", &ModelOrders::kPublish, mo::release, "lost wake"},
      {"kPublish: seq_cst -> relaxed", &ModelOrders::kPublish, mo::relaxed, "race"},
      {"kSeeSleepers: seq_cst -> acquire", &ModelOrders::kSeeSleepers, mo::acquire, "lost wake"},
      {"kSeeSleepers: seq_cst -> relaxed", &ModelOrders::kSeeSleepers, mo::relaxed, "lost wake"},
      {"kAnnounce: seq_cst -> acq_rel", &ModelOrders::kAnnounce, mo::acq_rel, "lost wake"},
      {"kAnnounce: seq_cst -> relaxed", &ModelOrders::kAnnounce, mo::relaxed, "lost wake"},
      {"kReached: acquire -> relaxed", &ModelOrders::kReached, mo::relaxed, "race"},
      {"kPoison: release -> relaxed", &ModelOrders::kPoison, mo::relaxed, "race"},
      {"kSeePoison: acquire -> relaxed", &ModelOrders::kSeePoison, mo::relaxed, "race"},
  };
  for (const Weakened& row : table) {
    const mo right = *row.order;
    *row.order = row.weaker;
    bool expected = false;
    for (const NamedProgram& program : revealing_programs()) {
      const Outcome got = Explorer::explore(*program.make());
      if (!got.ok) print_row(row.name, program.name, got);
      expected = expected || got.failure.starts_with(row.fails_with);
    }
    *row.order = right;
    EXPECT_TRUE(expected) << row.name << " was to fail with a " << row.fails_with;
  }
  for (const NamedProgram& program : revealing_programs()) {
    const Outcome got = Explorer::explore(*program.make());
    EXPECT_TRUE(got.ok) << program.name << " with the right orders: " << got.failure << "\n" << got.execution;
  }
}

TEST(SyncModel, EveryRuleOfTheProtocolIsNeeded) {
  struct Broken {
    const char* rule;
    NamedProgram program;
    const char* fails_with;
  };
  const std::vector<Broken> table = {
      {"one buffer instead of two",
       named<Phases<PlainData>>("2 ranks, spin", PhasesShape{.waiting = kSpin, .buffers = 1}), "race"},
      {"one buffer instead of two",
       named<Phases<RacyData>>("2 ranks, values", PhasesShape{.waiting = kSpin, .buffers = 1}), "stale value"},
      {"publish before write",
       named<Phases<PlainData>>("2 ranks, spin", PhasesShape{.waiting = kSpin, .publish_first = true}), "race"},
      {"publish before write",
       named<Phases<RacyData>>("2 ranks, values", PhasesShape{.waiting = kSpin, .publish_first = true}), "stale value"},
      {"three pieces in flight in two slots", named<Ring<PlainData>>("send/recv", RingShape{.in_flight = 3}),
       "stale value"},
      {"three pieces in flight in two slots", named<Ring<RacyData>>("send/recv, values", RingShape{.in_flight = 3}),
       "stale value"},
      {"acknowledge before read", named<Ring<PlainData>>("send/recv", RingShape{.acknowledge_first = true}), "race"},
      {"acknowledge before read", named<Ring<RacyData>>("send/recv, values", RingShape{.acknowledge_first = true}),
       "stale value"},
      {"no phase after reducing shared gradients",
       named<ReduceShared<PlainData>>("3 ranks", SharedShape{.skip_last_exchange = true}), "stale value"},
      {"pair: refill before drain",
       named<PairExchangeProgram<PlainData>>("pair", PairShape{.refill_before_drain = true}), "stale value"},
      {"pair: no swap between calls",
       named<PairExchangeProgram<PlainData>>("pair", PairShape{.chunks = 1, .no_swap = true}), "race"},
      {"pair: no swap between calls",
       named<PairExchangeProgram<RacyData>>("pair, values", PairShape{.chunks = 1, .no_swap = true}), "stale value"},
      {"pair: fill what the peer still reads",
       named<PairExchangeProgram<PlainData>>("pair", PairShape{.calls = 1, .fill_before_drain = true}), "race"},
      {"pair: drain without waiting", named<PairExchangeProgram<PlainData>>("pair", PairShape{.no_wait = true}),
       "stale value"},
      {"pair: drain without waiting", named<PairExchangeProgram<RacyData>>("pair, values", PairShape{.no_wait = true}),
       "stale value"},
      {"publish the poison before its text", named<Poison<PlainData>>("poison", true), "race"},
      {"publish the poison before its text", named<Poison<RacyData>>("poison, values", true), "stale value"},
  };
  for (const Broken& row : table) {
    const Outcome got = Explorer::explore(*row.program.make());
    print_row(row.rule, row.program.name, got);
    EXPECT_TRUE(got.failure.starts_with(row.fails_with)) << row.rule << " was to fail with a " << row.fails_with;
  }
}

}  // namespace
}  // namespace trireme::comm
