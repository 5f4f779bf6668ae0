// Oracle: closed form.
#include "base/deadline.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Deadline, IsNeverOnTheWrongSideOfNow) {
  const auto before = std::chrono::steady_clock::now();
  const auto hour = deadline_after(hours(1));
  const auto endless = deadline_after(milliseconds::max());
  const auto past = deadline_after(milliseconds::min());
  const auto just_past = deadline_after(milliseconds(-1));
  const auto after = std::chrono::steady_clock::now();
  EXPECT_GE(hour, before + hours(1));
  EXPECT_LE(hour, after + hours(1));
  EXPECT_GT(endless, after + hours(24 * 365 * 99));
  EXPECT_LE(past, after);
  EXPECT_LE(just_past, after);
}

}  // namespace
}  // namespace trireme
