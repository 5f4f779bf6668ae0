// Oracle: the C++20 standard (atomics.order, intro.races) and the usual litmus tests: which results of a small program
// are possible is known. The model check of sync.h is worth what its memory is worth; this checks the memory, in both
// directions: nothing impossible, and everything possible but what memory.h leaves out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/model_check/model_atomics.h"

namespace trireme::model {
namespace {

using testing::UnorderedElementsAre;
using mo = std::memory_order;

constexpr auto kRelaxed = mo::relaxed;
constexpr auto kAcquire = mo::acquire;
constexpr auto kRelease = mo::release;
constexpr auto kAcqRel = mo::acq_rel;
constexpr auto kSeqCst = mo::seq_cst;

struct Shared {
  ModelWord x;
  ModelWord y;
  PlainData data;
};

/// Threads write what they saw into `seen`; the results of all executions are collected.
class Litmus final : public Program {
 public:
  using Seen = std::array<uint32_t, 4>;
  using Body = std::function<void(Shared&, Seen&)>;
  explicit Litmus(std::vector<Body> bodies) : bodies_(std::move(bodies)) {}
  [[nodiscard]] int num_threads() const override { return static_cast<int>(bodies_.size()); }
  void reset() override {
    shared_.emplace();
    seen_ = {};
  }
  void run(int thread) override { bodies_[static_cast<size_t>(thread)](*shared_, seen_); }
  void check_end() override {
    std::string text;
    for (const uint32_t value : seen_) text += std::to_string(value);
    results.insert(text);
  }
  std::set<std::string> results;

 private:
  std::vector<Body> bodies_;
  std::optional<Shared> shared_;
  Seen seen_ = {};
};

/// Each result is the digits of `seen`.
std::set<std::string> results_of(std::vector<Litmus::Body> bodies) {
  Litmus program(std::move(bodies));
  const Outcome got = Explorer::explore(program);
  if (!got.ok) return {got.failure};
  return program.results;
}

std::set<std::string> store_buffering(mo store, mo load) {
  return results_of({[=](Shared& s, Litmus::Seen& seen) {
                       s.x.store(1, store);
                       seen[0] = s.y.load(load);
                     },
                     [=](Shared& s, Litmus::Seen& seen) {
                       s.y.store(1, store);
                       seen[1] = s.x.load(load);
                     }});
}
TEST(Litmus, StoreBufferingNeedsSeqCstOnAllFour) {
  EXPECT_THAT(store_buffering(kSeqCst, kSeqCst), UnorderedElementsAre("0100", "1000", "1100"));
  EXPECT_THAT(store_buffering(kRelease, kAcquire), UnorderedElementsAre("0000", "0100", "1000", "1100"));
  EXPECT_THAT(store_buffering(kSeqCst, kAcquire), UnorderedElementsAre("0000", "0100", "1000", "1100"));
  EXPECT_THAT(store_buffering(kRelease, kSeqCst), UnorderedElementsAre("0000", "0100", "1000", "1100"));
}

std::set<std::string> message_passing(mo store, mo load) {
  return results_of({[=](Shared& s, Litmus::Seen&) {
                       s.x.store(1, kRelaxed);
                       s.y.store(1, store);
                     },
                     [=](Shared& s, Litmus::Seen& seen) {
                       seen[0] = s.y.load(load);
                       seen[1] = s.x.load(kRelaxed);
                     }});
}
TEST(Litmus, MessagePassingNeedsReleaseAndAcquire) {
  EXPECT_THAT(message_passing(kRelease, kAcquire), UnorderedElementsAre("0000", "0100", "1100"));
  EXPECT_THAT(message_passing(kSeqCst, kSeqCst), UnorderedElementsAre("0000", "0100", "1100"));
  EXPECT_THAT(message_passing(kRelaxed, kAcquire), UnorderedElementsAre("0000", "0100", "1000", "1100"));
  EXPECT_THAT(message_passing(kRelease, kRelaxed), UnorderedElementsAre("0000", "0100", "1000", "1100"));
}

TEST(Litmus, ReadsOfOneWordNeverGoBack) {
  EXPECT_THAT(results_of({[](Shared& s, Litmus::Seen&) {
                            s.x.store(1, kRelaxed);
                            s.x.store(2, kRelaxed);
                          },
                          [](Shared& s, Litmus::Seen& seen) {
                            seen[0] = s.x.load(kRelaxed);
                            seen[1] = s.x.load(kRelaxed);
                          }}),
              UnorderedElementsAre("0000", "0100", "0200", "1100", "1200", "2200"));
}

TEST(Litmus, ReleaseSequenceGoesThroughReadModifyWritesOnly) {
  const auto with = [](const Litmus::Body& middle) {
    return results_of({[](Shared& s, Litmus::Seen&) {
                         s.y.store(1, kRelaxed);
                         s.x.store(1, kRelease);
                       },
                       middle,
                       [](Shared& s, Litmus::Seen& seen) {
                         seen[0] = s.x.load(kAcquire);
                         seen[1] = s.y.load(kRelaxed);
                       }});
  };
  // x is 0, then 1 and 11, or 10 before the store. Whoever sees 11 sees what was released with 1.
  const auto through = with([](Shared& s, Litmus::Seen&) { s.x.fetch_add(10, kRelaxed); });
  EXPECT_TRUE(through.contains("11100"));
  EXPECT_FALSE(through.contains("11000"));
  // C++20: a relaxed store of the same thread ends it.
  const auto after_store = results_of({[](Shared& s, Litmus::Seen&) {
                                         s.y.store(1, kRelaxed);
                                         s.x.store(1, kRelease);
                                         s.x.store(2, kRelaxed);
                                       },
                                       [](Shared& s, Litmus::Seen& seen) {
                                         seen[0] = s.x.load(kAcquire);
                                         seen[1] = s.y.load(kRelaxed);
                                       }});
  EXPECT_FALSE(after_store.contains("1000"));
  EXPECT_TRUE(after_store.contains("2000"));
}

TEST(Litmus, CausalityIsTransitive) {
  EXPECT_FALSE(results_of({[](Shared& s, Litmus::Seen&) { s.x.store(1, kRelease); },
                           [](Shared& s, Litmus::Seen& seen) {
                             seen[0] = s.x.load(kAcquire);
                             s.y.store(1, kRelease);
                           },
                           [](Shared& s, Litmus::Seen& seen) {
                             seen[1] = s.y.load(kAcquire);
                             seen[2] = s.x.load(kRelaxed);
                           }})
                   .contains("1100"));
}

TEST(Litmus, OneCompareExchangeOfTwoSucceeds) {
  const auto claim = [](int thread) {
    return [=](Shared& s, Litmus::Seen& seen) {
      uint32_t clean = 0;
      seen[static_cast<size_t>(thread)] = s.x.compare_exchange_strong(clean, 1, kRelaxed) ? 1 : 0;
    };
  };
  EXPECT_THAT(results_of({claim(0), claim(1), claim(2)}), UnorderedElementsAre("1000", "0100", "0010"));
}

TEST(Litmus, AdditionsAreNotLost) {
  const auto add = [](Shared& s, Litmus::Seen& seen) { seen[0] += s.x.fetch_add(1, kRelaxed); };
  EXPECT_THAT(results_of({add, add, add}), UnorderedElementsAre("3000"));  // 0 + 1 + 2
}

TEST(Litmus, DataIsOrderedByReleaseAndAcquireAlone) {
  const auto hand_over = [](mo store, mo load) {
    return results_of({[=](Shared& s, Litmus::Seen&) {
                         s.data.write(7);
                         s.x.store(1, store);
                       },
                       [=](Shared& s, Litmus::Seen& seen) {
                         if (s.x.load(load) == 1) seen[0] = s.data.read();
                       }});
  };
  EXPECT_THAT(hand_over(kRelease, kAcquire), UnorderedElementsAre("0000", "7000"));
  EXPECT_THAT(hand_over(kRelaxed, kAcquire), UnorderedElementsAre("race: a read races with a write"));
  EXPECT_THAT(hand_over(kRelease, kRelaxed), UnorderedElementsAre("race: a read races with a write"));
}

TEST(Litmus, RaceIsFoundWhicheverComesFirst) {
  const auto read = [](Shared& s, Litmus::Seen&) { (void)s.data.read(); };
  const auto write = [](Shared& s, Litmus::Seen&) { s.data.write(1); };
  EXPECT_THAT(results_of({read, write}), UnorderedElementsAre("race: a write races with a read"));
  EXPECT_THAT(results_of({write, read}), UnorderedElementsAre("race: a read races with a write"));
  EXPECT_THAT(results_of({write, write}), UnorderedElementsAre("race: two writes race"));
  EXPECT_THAT(results_of({read, read}), UnorderedElementsAre("0000"));
}

// The futex: one thread sleeps while x is 0. Without the wake it sleeps for ever; a wake that comes before the store is
// of no use.
TEST(Litmus, WakeIsNeededAndMustFollowTheStore) {
  const Litmus::Body sleep = [](Shared& s, Litmus::Seen&) { ModelAtomics::wait(s.x, 0, std::chrono::milliseconds(1)); };
  const auto lost = UnorderedElementsAre("lost wake: a thread sleeps and nobody will wake it");
  EXPECT_THAT(results_of({sleep, [](Shared& s, Litmus::Seen&) { s.x.store(1, kSeqCst); }}), lost);
  EXPECT_THAT(results_of({sleep,
                          [](Shared& s, Litmus::Seen&) {
                            ModelAtomics::wake_all(s.x);
                            s.x.store(1, kSeqCst);
                          }}),
              lost);
  EXPECT_THAT(results_of({sleep,
                          [](Shared& s, Litmus::Seen&) {
                            s.x.store(1, kRelaxed);
                            ModelAtomics::wake_all(s.x);
                          }}),
              UnorderedElementsAre("0000"));
}

TEST(Litmus, IndependentReadersAgreeOnlyUnderSeqCst) {
  // Four threads are one too many for the model; the reader of x first is the writer of x's own thread.
  const auto with = [](mo order) {
    return results_of({[=](Shared& s, Litmus::Seen& seen) {
                         s.x.store(1, order);
                         seen[0] = s.y.load(order);
                       },
                       [=](Shared& s, Litmus::Seen&) { s.y.store(1, order == kSeqCst ? kSeqCst : kRelease); },
                       [=](Shared& s, Litmus::Seen& seen) {
                         seen[1] = s.y.load(order);
                         seen[2] = s.x.load(order);
                       }});
  };
  EXPECT_FALSE(with(kSeqCst).contains("0100"));
  EXPECT_TRUE(with(kRelaxed).contains("0100"));
}

TEST(Litmus, ExchangeTakesAndGivesOrder) {
  const auto with = [](mo order) {
    return results_of({[=](Shared& s, Litmus::Seen&) {
                         s.data.write(5);
                         s.x.fetch_add(1, order);
                       },
                       [=](Shared& s, Litmus::Seen& seen) {
                         if (s.x.fetch_add(10, order) == 1) seen[0] = s.data.read();
                       }});
  };
  EXPECT_THAT(with(kAcqRel), UnorderedElementsAre("0000", "5000"));
  EXPECT_THAT(with(kRelaxed), UnorderedElementsAre("race: a read races with a write"));
}

}  // namespace
}  // namespace trireme::model
