// Oracle: the compiler. What has a unit adds up with the same unit only, and quotients have the unit that they must have.
#include "plan/units.h"

#include <gtest/gtest.h>

#include <concepts>
#include <type_traits>

#include "plan/numbers.h"

namespace trireme::plan {
namespace {

template <typename A, typename B>
concept Adds = requires(A a, B b) { a + b; };
template <typename A, typename B>
concept Compares = requires(A a, B b) { a < b; };

static_assert(std::same_as<decltype(Bytes{1} / BytesPerSecond{1}), Seconds>);
static_assert(std::same_as<decltype(Flops{1} / FlopsPerSecond{1}), Seconds>);
static_assert(std::same_as<decltype(Seconds{1} * BytesPerSecond{1}), Bytes>);
static_assert(std::same_as<decltype(Seconds{1} / Seconds{1}), double>);
static_assert(!std::same_as<decltype(Flops{1} / BytesPerSecond{1}), Seconds>);
static_assert(Adds<Seconds, Seconds> && !Adds<Seconds, Bytes> && !Adds<Seconds, double> && !Adds<double, Bytes>);
static_assert(Compares<Bytes, Bytes> && !Compares<Bytes, Seconds> && !Compares<Bytes, double>);
static_assert(!std::convertible_to<double, Seconds> && !std::convertible_to<Seconds, double>);
static_assert(sizeof(Seconds) == sizeof(double) && std::is_trivially_copyable_v<Seconds>);

// What the models return has its unit, so a formula that makes another one does not compile.
static_assert(std::same_as<decltype(TimeParts{}.total()), Seconds> &&
              std::same_as<decltype(MemoryParts{}.total()), Bytes>);

TEST(Units, ComputeAsNumbersDo) {
  EXPECT_DOUBLE_EQ((Bytes{1e9} / BytesPerSecond{50e9} + 2 * Seconds{0.01}).value, 0.04);
  EXPECT_DOUBLE_EQ(Flops{6e12} / FlopsPerSecond{3e12} / Seconds{2}, 1);
  EXPECT_LT(Bytes{1}, Bytes{2});
}

}  // namespace
}  // namespace trireme::plan
