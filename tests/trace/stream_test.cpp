// Oracle: closed form. R07: two million events go through a buffer of one piece.
#include <gtest/gtest.h>

#include <algorithm>

#include "profile/chrome_trace.h"

namespace trireme::trace {
namespace {

TEST(ChromeWriter, MillionsOfEventsAreStreamed) {
  constexpr int kEvents = 2'000'000;
  size_t largest = 0;
  uint64_t bytes = 0;
  uint64_t lines = 0;
  profile::ChromeTraceWriter writer(
      [&](std::string_view piece) {
        largest = std::max(largest, piece.size());
        bytes += piece.size();
        lines += static_cast<uint64_t>(std::count(piece.begin(), piece.end(), '\n'));
      },
      {});
  for (int i = 0; i < kEvents; ++i)
    writer.span({.name = "aten::add", .category = "cpu_op", .start_ns = i, .end_ns = i + 1, .pid = 1, .tid = 2});
  writer.finish();
  EXPECT_EQ(writer.num_events(), static_cast<uint64_t>(kEvents));
  EXPECT_EQ(writer.num_bytes(), bytes);
  EXPECT_LT(largest, size_t{128} << 10);
  EXPECT_EQ(lines, static_cast<uint64_t>(kEvents) + 5);  // four of the head, one behind the end
}

}  // namespace
}  // namespace trireme::trace
