// Oracle: closed form. A child that does nothing but write records is killed with SIGKILL at seeded moments; what it
// left must be whole records, as many as the ring holds but for those that its threads were at.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "profile/trace_oracle.h"
#include "support/stepped_child.h"
#include "support/temp_dir.h"

namespace trireme::profile {
namespace {

constexpr int kThreads = 2;
constexpr uint32_t kCapacity = 64;

[[noreturn]] void write_for_ever(const std::string& path, int ready_fd) {
  const auto trace = open_collective_trace({.path = path, .rank = 0, .capacity = kCapacity});
  (void)trace->register_group("world", {0, 1});
  const auto write = [&](uint64_t thread) {
    for (uint64_t i = 0;; ++i) {
      const uint64_t token = trace->queued(record_of(i * kThreads + thread));
      trace->started(token);
      trace->finished(token, true);
      // Two laps, not one: a thread may sleep between taking a serial and claiming its slot, which then stays unused for that lap. It
      // holds one serial at a time, so on the second lap the slot is somebody's.
      if (thread == 0 && i == uint64_t{2} * kCapacity) (void)!::write(ready_fd, "r", 1);
    }
  };
  std::thread other([&] { write(1); });
  write(0);
  std::abort();  // not reached
}

TEST(TraceKill, WhatAKilledWriterLeftIsWhole) {
  const uint32_t seed = 7;
  std::mt19937 random(seed);
  uint64_t torn = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const test::TempDir dir;
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_for_ever(dir / "trace", ready[1]);
    close(ready[1]);
    char byte = 0;
    const ssize_t got = ::read(ready[0], &byte, 1);
    close(ready[0]);
    // Long enough, against a record's time, to end anywhere in one.
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(random() % 200'000);
    while (std::chrono::steady_clock::now() < until) {
    }
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_EQ(got, 1);
    ASSERT_TRUE(WIFSIGNALED(status));

    const TraceSnapshot left = read_collective_trace(dir / "trace").value();
    EXPECT_FALSE(left.closed);
    EXPECT_EQ(left.pid, child);
    EXPECT_EQ(left.groups.size(), 1U);
    EXPECT_LE(left.torn, uint64_t{kThreads}) << "seed " << seed << " trial " << trial;
    EXPECT_EQ(left.records.size() + left.torn, kCapacity) << "seed " << seed << " trial " << trial;
    for (const TraceRecord& record : left.records) {
      ASSERT_TRUE(is_whole(record)) << "seed " << seed << " trial " << trial;
    }
    torn += left.torn;
  }
  std::printf("              records caught in the middle of a write: %llu of 40 kills\n",
              static_cast<unsigned long long>(torn));
}

// A file that is half made has nobody who would remove it, so it must not have a name yet. Killed before each of its system calls on files.
TEST(TraceKill, AWriterKilledWhileItOpensLeavesATraceOrNothing) {
  const test::TempDir dir;
  const int nameless = open(dir.path().c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  if (nameless < 0) GTEST_SKIP() << dir.path() << " is on a file system without O_TMPFILE";
  close(nameless);
  int without = 0;
  for (int call = 1;; ++call) {
    const std::string folder = dir / std::to_string(call);
    std::filesystem::create_directory(folder);
    const test::SteppedChild child = test::run_stepped(
        [&] {
          (void)open_collective_trace({.path = folder + "/trace", .rank = 0, .capacity = 1 << 10});
          return 0;
        },
        {.call = call});
    if (!child.unavailable.empty()) GTEST_SKIP() << child.unavailable;
    const bool there = std::filesystem::exists(folder + "/trace");
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      EXPECT_EQ(entry.path().filename(), "trace") << "killed before call " << call << ", " << child.calls.back();
    }
    if (!child.killed) {
      EXPECT_EQ(child.exit_code, 0);
      EXPECT_TRUE(there);
      break;
    }
    without += there ? 0 : 1;
    if (there) {
      EXPECT_TRUE(read_collective_trace(folder + "/trace").ok()) << "killed before call " << call;
    }
  }
  EXPECT_GE(without, 3) << "it is opened, filled and named";
}

}  // namespace
}  // namespace trireme::profile
