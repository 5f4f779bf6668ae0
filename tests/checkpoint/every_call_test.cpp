// Case C01, exhaustively: a save is killed before each of its system calls on files, and each of them fails.
// Oracle: what is read afterwards is whole; it is the checkpoint before until the rename, the new one from then on.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "checkpoint/folder_fixture.h"
#include "support/stepped_child.h"
#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

// In memory where that is possible: a disk would have to bring thousands of files to rest.
std::filesystem::path quick_folder() {
  return access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
}

constexpr int kSaved = 0;
constexpr int kRefused = 10;  // kIo, and in the right words
constexpr int kUnclear = 11;

// What a save comes to, as the exit code of a child.
int save_in_child(const std::string& root, int64_t step, int keep_last) {
  try {
    write_step(root, step, 100'000, keep_last);
    return kSaved;
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool clear = error.kind() == ErrorKind::kIo && what.starts_with("[checkpoint.save] ") &&
                       what.find(root) != std::string::npos && what.find('\n') == std::string::npos;
    if (!clear) (void)!write(STDERR_FILENO, (what + '\n').data(), what.size() + 1);
    return clear ? kRefused : kUnclear;
  } catch (const std::exception& error) {
    (void)!write(STDERR_FILENO, error.what(), std::strlen(error.what()));
    return kUnclear;
  }
}

// The child saves step 2 beside step 1, which then goes (keep_last 1), or saves step 1 once more in place of itself.
class CheckpointEveryCall : public testing::TestWithParam<int64_t> {
 protected:
  test::SteppedChild strike(const std::string& root, const test::Strike& strike) {
    return test::run_stepped([&] { return save_in_child(root, GetParam(), 1); }, strike);
  }
};

TEST_P(CheckpointEveryCall, KilledBeforeItLeavesOneThatIsWhole) {
  bool new_before = false;
  for (int call = 1;; ++call) {
    SCOPED_TRACE("killed before call " + std::to_string(call));
    const test::TempDir dir(quick_folder());
    write_step(dir.path(), 1, 1000);
    const test::SteppedChild child = strike(dir.path(), {call, 0});
    if (!child.unavailable.empty()) GTEST_SKIP() << child.unavailable;
    if (!child.killed) {
      EXPECT_EQ(child.exit_code, kSaved);
      EXPECT_GT(call, 15);  // otherwise nothing was struck
      break;
    }
    const auto found = read_latest(dir.path());
    ASSERT_TRUE(found.has_value()) << child.calls.back();
    expect_whole(*found);
    const bool is_new = found->tensors.at("w").view.bytes.size() == 400'000;
    EXPECT_EQ(found->step, is_new ? GetParam() : 1);
    EXPECT_TRUE(is_new || !new_before) << "older again before " << child.calls.back();
    new_before = is_new;
    write_step(dir.path(), 3, 1000, 1);
    EXPECT_EQ(num_leftovers(dir.path()), 0);
    EXPECT_THAT(steps_below(dir.path()), testing::ElementsAre(3));
  }
  EXPECT_TRUE(new_before);
}

TEST_P(CheckpointEveryCall, FailureOfItIsOneClearErrorOrNone) {
  for (const int error_number : {EIO, ENOSPC}) {
    int refused = 0;
    for (int call = 1;; ++call) {
      const test::TempDir dir(quick_folder());
      write_step(dir.path(), 1, 1000);
      const test::SteppedChild child = strike(dir.path(), {call, error_number});
      if (!child.unavailable.empty()) GTEST_SKIP() << child.unavailable;
      if (static_cast<int>(child.calls.size()) < call) break;
      SCOPED_TRACE(std::string(std::strerror(error_number)) + " from call " + std::to_string(call) + ", " +
                   child.calls[static_cast<size_t>(call) - 1]);
      EXPECT_TRUE(child.exit_code == kSaved || child.exit_code == kRefused) << child.exit_code;
      refused += child.exit_code == kRefused ? 1 : 0;
      const auto found = read_latest(dir.path());
      ASSERT_TRUE(found.has_value());
      expect_whole(*found);
      if (child.exit_code == kSaved) {
        EXPECT_EQ(found->tensors.at("w").view.bytes.size(), 400'000U);
      }
      write_step(dir.path(), 3, 1000, 1);
      EXPECT_EQ(num_leftovers(dir.path()), 0);
    }
    EXPECT_GT(refused, 8);  // make, open, lock, write and sync twice, rename
  }
}

// Files, their folder and the root, so that the order survives a power cut; and the folders above it where they are new.
TEST(CheckpointSyncs, WhatIsNewUpToTheFolderThatWasThere) {
  const test::TempDir dir(quick_folder());
  for (const auto& [root, want] : std::map<std::string, int>{{dir.path(), 4}, {dir / "a/b", 6}}) {
    const test::SteppedChild child = test::run_stepped([&root = root] { return save_in_child(root, 1, 1); });
    if (!child.unavailable.empty()) GTEST_SKIP() << child.unavailable;
    EXPECT_EQ(child.exit_code, kSaved);
    EXPECT_EQ(std::count(child.calls.begin(), child.calls.end(), "fsync"), want) << root;
  }
}

INSTANTIATE_TEST_SUITE_P(Step, CheckpointEveryCall, testing::Values(2, 1),
                         [](const auto& info) { return info.param == 1 ? "TheSame" : "TheNext"; });

}  // namespace
}  // namespace trireme::checkpoint
