// Oracle: closed form. R09: a child that does nothing but write a trace is killed with SIGKILL at seeded moments; what it left gives its whole events, in order,
// and says that it is cut off.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "profile/chrome_trace.h"
#include "support/temp_dir.h"
#include "trace/read_timeline.h"

namespace trireme::trace {
namespace {

[[noreturn]] void write_for_ever(const std::string& path, int ready_fd) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  profile::ChromeTraceWriter writer(
      [fd](std::string_view text) {
        while (!text.empty()) {
          const ssize_t n = ::write(fd, text.data(), text.size());
          if (n <= 0) _exit(1);
          text.remove_prefix(static_cast<size_t>(n));
        }
      },
      {.rank = 1});
  for (int64_t i = 0;; ++i) {
    writer.span({.name = "n", .category = "cpu_op", .start_ns = 10 * i, .end_ns = 10 * i + 7, .pid = 1, .tid = 1});
    if (i == 2000) (void)!::write(ready_fd, "r", 1);
  }
}

TEST(TraceKill, WhatAKilledWriterLeftIsRead) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 20; ++trial) {
    const test::TempDir dir;
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_for_ever(dir / "rank1.json", ready[1]);
    close(ready[1]);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    close(ready[0]);
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 3000);
    while (std::chrono::steady_clock::now() < until) {
    }
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const Timeline timeline = load_timeline(dir / "rank1.json");
    EXPECT_EQ(timeline.rank, 1);
    EXPECT_GT(timeline.num_events, 500U);
    EXPECT_TRUE(timeline.lower_limit);
    EXPECT_THAT(timeline.notices, testing::Contains(testing::HasSubstr("cut off")));
    ASSERT_EQ(timeline.spans.size(), timeline.num_events);
    for (size_t i = 0; i < timeline.spans.size(); ++i) {
      ASSERT_EQ(timeline.spans[i].start_ns, static_cast<int64_t>(10 * i));
      ASSERT_EQ(timeline.spans[i].end_ns, static_cast<int64_t>(10 * i + 7));
    }
  }
}

}  // namespace
}  // namespace trireme::trace
