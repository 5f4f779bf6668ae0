// Case C01, kills at random moments. Oracle: whatever the moment, the newest checkpoint read afterwards is whole, and never
// older than the last whose save had returned.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "checkpoint/folder_fixture.h"
#include "support/soak.h"
#include "support/temp_dir.h"

namespace trireme::checkpoint {
namespace {

TEST(CheckpointKillSoak, KilledAtSeededMomentsIsWhole) {
  const int kills = trireme::testing::whole_table() ? 500 : 50;
  constexpr unsigned kSeed = 20'261'130;
  std::mt19937 random(kSeed);  // NOLINT: a fixed seed is the point
  int found_leftovers = 0;
  for (int i = 0; i < kills; ++i) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", kill " + std::to_string(i));
    const test::TempDir dir;
    write_step(dir.path(), 0);
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
      for (int64_t step = 1;; ++step) {
        write_step(dir.path(), step, 200'000);
        if (write(pipes[1], &step, sizeof step) < 0) _exit(1);
      }
    }
    close(pipes[1]);
    int64_t returned = 0;
    ASSERT_EQ(read(pipes[0], &returned, sizeof returned), static_cast<ssize_t>(sizeof returned));
    // A seeded share of a save's own time, whatever the disk and the load make of that.
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(read(pipes[0], &returned, sizeof returned), static_cast<ssize_t>(sizeof returned));
    const auto save_time = std::chrono::steady_clock::now() - start;
    std::this_thread::sleep_for(save_time * (random() % 1000) / 1000);  // the moment, not a wait
    kill(child, SIGKILL);
    while (read(pipes[0], &returned, sizeof returned) > 0) {
    }
    close(pipes[0]);
    waitpid(child, nullptr, 0);
    found_leftovers += num_leftovers(dir.path()) > 0 ? 1 : 0;
    const int64_t found = expect_whole_latest(dir.path());
    EXPECT_TRUE(found == returned || found == returned + 1) << found << " after " << returned;
    write_step(dir.path(), found + 1);
    EXPECT_EQ(num_leftovers(dir.path()), 0);
  }
  // Otherwise all kills fell between saves, and nothing was tested. (How many do is the scheduler's choice; CheckpointEveryCall
  // leaves none to it.)
  EXPECT_GT(found_leftovers, 0);
}

}  // namespace
}  // namespace trireme::checkpoint
