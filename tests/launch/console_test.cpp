// Oracle: closed form. The test reads the other end of what the console writes to, byte for byte, and decides when.
#include "launch/console.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>

#include "support/patience.h"

namespace trireme::launch {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// Standard output is a pipe while it lives.
class ConsoleTest : public testing::Test {
 protected:
  ConsoleTest() : room_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), stdout_before_(dup(STDOUT_FILENO)) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    reader_ = Fd(ends[0]);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
  }
  ~ConsoleTest() override { restore(); }

  void restore() {
    if (stdout_before_) dup2(stdout_before_.get(), STDOUT_FILENO);
    stdout_before_.reset();
  }
  size_t read_bytes(size_t count) {
    std::string buffer(65536, '\0');
    size_t done = 0;
    while (done < count) {
      const ssize_t got = read(reader_.get(), buffer.data(), std::min(buffer.size(), count - done));
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }
  static bool raised(int fd) {
    pollfd item{fd, POLLIN, 0};
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(test::kPatience);
    return poll(&item, 1, static_cast<int>(limit.count())) == 1;
  }

  Fd room_;
  Fd stdout_before_;
  Fd reader_;
};

// Stream A was told "full" and waits for room; stream B asks a moment later, when there is a little room, but not enough for A's sign.
TEST_F(ConsoleTest, WhoWasToldFullIsToldOfRoomWhateverOthersAsk) {
  Console console(room_.get());
  for (int i = 0; i < 4; ++i) console.write(1, std::string(kMiB, 'x'));
  ASSERT_TRUE(console.full());
  ASSERT_EQ(read_bytes(kMiB + 65536), kMiB + 65536);
  const auto until = std::chrono::steady_clock::now() + test::kPatience;
  while (console.full()) ASSERT_LT(std::chrono::steady_clock::now(), until);
  ASSERT_EQ(read_bytes(3 * kMiB - 65536), 3 * kMiB - 65536);
  EXPECT_TRUE(raised(room_.get()));
}

TEST_F(ConsoleTest, FinishTellsWhetherAllIsWritten) {
  {
    Console console(room_.get());
    console.write(1, "all of it\n");
    EXPECT_TRUE(console.finish(-1, std::chrono::milliseconds(-1)));
  }
  EXPECT_EQ(read_bytes(10), 10U);
}

TEST_F(ConsoleTest, AReaderThatHasStoppedKeepsNobodyOnceTheTextIsDropped) {
  const Fd interrupt(eventfd(1, EFD_CLOEXEC));
  Console console(room_.get());
  console.write(1, std::string(kMiB, 'x'));
  EXPECT_FALSE(console.finish(interrupt.get(), std::chrono::milliseconds(-1)));
  EXPECT_FALSE(console.finish(-1, std::chrono::milliseconds(1)));
  console.drop();
}  // the destructor returns

}  // namespace
}  // namespace trireme::launch
