// Oracle: divisibility by hand, and searches of the test's own over all numbers of devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "plan/fewer_devices.h"
#include "plan/impossible_values.h"
#include "plan/plan_text.h"
#include "plan/smallest_change.h"
#include "small_case.h"

namespace trireme::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SmallestChange, FitsAndChangesNoMoreThanAnyOtherThatFits) {
  const Numbers n(machine(12));
  const Plan base = {.dp = 16};
  ASSERT_GT(peak_memory(n.model, n.machine, n.training, base).parts.total().value, 0.9 * 12e9);
  const auto least = smallest_change(n.model, n.machine, n.training, 16, {}, base, 16);
  ASSERT_TRUE(least);
  EXPECT_LE(least->to.bytes, 0.9 * 12e9);
  EXPECT_EQ(least->changes, 1) << describe(least->to.plan);
}

// By trying all: within a host no smaller number fits, and it need not be a power of two times what there was; then whole hosts.
TEST(SmallestChange, TakesTheSmallestNumberOfDevicesThatAnyPlanFits) {
  bool not_doubled = false;
  for (const double gigabytes : {1.6, 2.0, 2.4, 3.0, 4.0}) {
    const Numbers n(machine(gigabytes));
    const auto least = smallest_change(n.model, n.machine, n.training, 1, {}, {.dp = 1}, 64);
    ASSERT_TRUE(least) << gigabytes;
    EXPECT_GT(least->devices, 1);
    for (int64_t fewer = 1; fewer < least->devices; fewer += fewer < 8 ? 1 : 8)
      EXPECT_TRUE(search(n.model, n.machine, n.training, fewer, {}, 1).best.empty()) << fewer;
    not_doubled = not_doubled || (least->devices & (least->devices - 1)) != 0;
  }
  EXPECT_TRUE(not_doubled);
}

std::vector<std::string> impossible(void (*set)(Constraints&)) {
  const Numbers n(machine(80));
  Constraints c;
  set(c);
  return impossible_values(c, n.model, n.training, 96, 96, 8);
}

// Batch 64, 2048 tokens, 24 layers, 16 heads, feed-forward 4096; 96 devices.
TEST(ImpossibleValues, NameTheDivisibilityThatFails) {
  EXPECT_THAT(impossible([](Constraints&) {}), IsEmpty());
  EXPECT_THAT(impossible([](Constraints& c) { c.micro_batch = {3}; }),
              ElementsAre("--micro-batch 3 does not divide the global batch of 64"));
  EXPECT_THAT(impossible([](Constraints& c) { c.dp = {5}; }), ElementsAre("--dp 5 does not divide the 96 devices"));
  EXPECT_THAT(impossible([](Constraints& c) { c.dp = {3}; }),
              ElementsAre("--dp 3 does not divide the global batch of 64"));
  EXPECT_THAT(impossible([](Constraints& c) { c.tp = {3, 2}; }),
              ElementsAre("--tp 3 does not divide the 16 attention heads"));
  EXPECT_THAT(impossible([](Constraints& c) { c.tp = {16}; }),
              ElementsAre("--tp 16 is more than the 8 devices of one link domain (--tp-across-hosts allows it)"));
  EXPECT_THAT(impossible([](Constraints& c) {
                c.tp = {16};
                c.tp_across_hosts = true;
              }),
              IsEmpty());
  EXPECT_THAT(impossible([](Constraints& c) { c.pp = {32}; }), ElementsAre("--pp 32 is more than the 24 layers"));
  EXPECT_THAT(impossible([](Constraints& c) { c.cp = {3}; }),
              ElementsAre("--cp 3 does not divide the sequence length of 2048"));
  EXPECT_THAT(impossible([](Constraints& c) { c.ep = {2}; }), ElementsAre("--ep 2: the model has no experts"));
  EXPECT_THAT(impossible([](Constraints& c) {
                c.pp = {4};
                c.virtual_stages = {5};
              }),
              ElementsAre("--virtual-stages 5 x pp 4: the 24 layers are no multiple of it"));
  EXPECT_THAT(impossible([](Constraints& c) {
                c.pp = {4};
                c.virtual_stages = {3};
              }),
              IsEmpty());
}

TEST(ImpossibleValues, NameWhatIsImpossibleTogether) {
  EXPECT_THAT(impossible([](Constraints& c) {
                c.tp = {8};
                c.pp = {8};
              }),
              ElementsAre("--tp 8 x --pp 8 = 64 does not divide the 96 devices"));
  EXPECT_THAT(impossible([](Constraints& c) {
                c.dp = {4};
                c.tp = {4};
                c.pp = {3};
                c.cp = {1};
              }),
              ElementsAre("--dp 4 x --tp 4 x --pp 3 x --cp 1 = 48 is not the 96 devices"));
  EXPECT_THAT(impossible([](Constraints& c) {
                c.dp = {32};
                c.micro_batch = {4};
              }),
              ElementsAre("--dp 32 x --micro-batch 4 does not divide the global batch of 64"));
  EXPECT_THAT(impossible([](Constraints& c) {
                c.tp = {8};
                c.pp = {1};
                c.cp = {1};
              }),
              ElementsAre("what the other degrees leave for dp, 12 does not divide the global batch of 64"));
  EXPECT_THAT(impossible([](Constraints& c) {
                c.tp = {8, 4};
                c.pp = {8, 4};
              }),
              IsEmpty());
}

// Where a value is called impossible the search finds nothing; where it is not, what hinders is more than one value.
TEST(ImpossibleValues, AgreeWithTheSearch) {
  const Numbers n(machine(80));
  int named = 0, found = 0;
  for (const int64_t devices : {6, 16, 24}) {
    for (int64_t v = 1; v <= 32; ++v) {
      for (std::vector<int64_t> Constraints::* flag : {&Constraints::dp, &Constraints::tp, &Constraints::pp,
                                                       &Constraints::cp, &Constraints::ep, &Constraints::micro_batch}) {
        Constraints c;
        c.*flag = {v};
        const bool none = search(n.model, n.machine, n.training, devices, c, 1).best.empty();
        const std::vector<std::string> lines = impossible_values(c, n.model, n.training, devices, devices, 8);
        if (!lines.empty()) {
          EXPECT_TRUE(none) << devices << " devices: " << lines.front();
        }
        // 16 devices go into every degree: there one value is all that can hinder.
        if (devices == 16) {
          EXPECT_EQ(none, !lines.empty()) << v;
        }
        named += lines.empty() ? 0 : 1;
        found += none ? 0 : 1;
      }
    }
  }
  EXPECT_GT(named, 100);
  EXPECT_GT(found, 30);
}

// By hand: 7 hosts of 8 leave dp 8 x pp 7 at best, 4 of 24 layers on a rank and 6 of 14 slots idle; 32 devices are 32 replicas. By trying each
// smaller number of hosts: none is faster.
TEST(FewerDevices, AreNamedWhereTheyAreFaster) {
  Numbers n(machine(80, 400e9));
  n.training.sequence = 16384;  // computing outweighs reducing
  Constraints c;
  c.tp = {1};
  c.cp = {1};
  c.schedule = {"1f1b"};
  c.even_stages = true;
  const auto best = [&](int64_t devices) {
    const SearchResult result = search(n.model, n.machine, n.training, devices, c, 1);
    return result.best.empty() ? std::numeric_limits<double>::infinity() : result.best.front().seconds;
  };
  const double all = best(56);
  const auto fewer = faster_on_fewer(n.model, n.machine, n.training, 56, c, 0, all);
  ASSERT_TRUE(fewer);
  double fastest = std::numeric_limits<double>::infinity();
  for (int64_t devices = 8; devices < 56; devices += 8) fastest = std::min(fastest, best(devices));
  EXPECT_LT(fewer->best.seconds, all);
  EXPECT_DOUBLE_EQ(fewer->best.seconds, fastest);
  EXPECT_DOUBLE_EQ(best(fewer->devices), fastest);
  // Nothing is faster than the fastest, and what would need more than a device can do is not tried.
  EXPECT_FALSE(faster_on_fewer(n.model, n.machine, n.training, 56, c, 0, fastest));
  EXPECT_FALSE(faster_on_fewer(n.model, n.machine, n.training, 56, c, 56 * n.machine.linear.value * all, all));
}

}  // namespace
}  // namespace trireme::plan
