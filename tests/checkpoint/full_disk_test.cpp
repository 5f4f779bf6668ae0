// Case C01, disks that are full or refuse. Oracle: the disk is a tmpfs of known size, filled so that a save stops at each of its
// pages in turn; the kernel's own error must come out as one clear line, the checkpoint before must be whole, and with room again the
// next save succeeds and leaves nothing else behind.
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "checkpoint/folder_fixture.h"
#include "checkpoint/small_disk.h"
#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCount = 16'000;      // 63 KiB of tensor
const std::string kNote(20'000, 'n');  // and 20 KB of index
constexpr const char* kFull = "No space left on device";
constexpr const char* kFreeSome = "Free some space";

// The message of the kIo error, or nothing when the save succeeded.
std::string save_error(const std::string& root, int64_t step, size_t count = kCount) {
  try {
    write_step(root, step, count, 2, kNote);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_EQ(exit_code(error.kind()), 1);
    return error.what();
  }
  return {};
}

class CheckpointFullDisk : public testing::Test {
 protected:
  void run(const std::string& options, const std::function<void()>& body) {
    std::string refused;
    const int failed = test::run_with_tmpfs(dir_.path(), options, body, &refused);
    if (!refused.empty()) GTEST_SKIP() << refused;
    EXPECT_EQ(failed, 0) << "see above";
  }
  const test::TempDir dir_;
  const std::string root_ = dir_ / "checkpoints";
};

TEST_F(CheckpointFullDisk, FullAtEveryPageKeepsTheOneBefore) {
  run("size=2m", [&] {
    write_step(root_, 1);
    int shard_stops = 0;
    int index_stops = 0;
    for (int pages = 0;; ++pages) {
      SCOPED_TRACE(std::to_string(pages) + " pages free");
      test::fill_all_but(dir_ / "ballast", pages);
      const std::string error = save_error(root_, 2);
      if (error.empty()) break;
      expect_clear(error, root_ + "/.tmp-", kFull, kFreeSome);
      (error.find("index.json") != std::string::npos ? index_stops : shard_stops) += 1;
      EXPECT_EQ(num_leftovers(root_), 0);
      EXPECT_THAT(steps_below(root_), testing::ElementsAre(1));
      EXPECT_EQ(expect_whole_latest(root_), 1);
      fs::remove(dir_ / "ballast");
      ASSERT_EQ(save_error(root_, 2), "");
      EXPECT_EQ(expect_whole_latest(root_), 2);
      fs::remove_all(root_ + "/step-2");
    }
    EXPECT_EQ(expect_whole_latest(root_), 2);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    EXPECT_GE(static_cast<size_t>(shard_stops), kCount * sizeof(float) / page);
    EXPECT_GE(static_cast<size_t>(index_stops), kNote.size() / page);
  });
}

TEST_F(CheckpointFullDisk, NoMoreFilesThanTheDiskAllows) {
  run("size=2m,nr_inodes=20", [&] {
    write_step(root_, 1);
    for (int i = 0; i < 20; ++i) std::ofstream(dir_ / ("ballast" + std::to_string(i)));
    // Folder, shard, index: room for one file more each time.
    const std::vector<std::string> stops = {"make the folder", "safetensors: cannot create",
                                            "index.json: cannot create"};
    int free = 0;
    for (; free < 4; ++free) {
      const std::string error = save_error(root_, 2);
      if (error.empty()) break;
      ASSERT_LT(static_cast<size_t>(free), stops.size());
      expect_clear(error, root_ + "/.tmp-", kFull, kFreeSome);
      EXPECT_THAT(error, testing::HasSubstr(stops[static_cast<size_t>(free)]));
      EXPECT_EQ(num_leftovers(root_), 0);
      EXPECT_EQ(expect_whole_latest(root_), 1);
      fs::remove(dir_ / ("ballast" + std::to_string(free)));
    }
    EXPECT_EQ(free, 3);
    EXPECT_EQ(expect_whole_latest(root_), 2);
  });
}

// Two checkpoints fit, and the rest of a third that was killed is in the way of neither.
TEST_F(CheckpointFullDisk, LeftOverOfAKilledSaveMakesRoomForTheNext) {
  run("size=256k", [&] {
    ASSERT_EQ(save_error(root_, 1), "");
    fs::create_directory(root_ + "/.tmp-00000000deadbeef");
    test::fill_all_but(root_ + "/.tmp-00000000deadbeef/model-00001-of-00001.safetensors", 0);
    EXPECT_EQ(expect_whole_latest(root_), 1);
    ASSERT_EQ(save_error(root_, 2), "");
    EXPECT_EQ(num_leftovers(root_), 0);
    EXPECT_EQ(expect_whole_latest(root_), 2);
  });
}

TEST_F(CheckpointFullDisk, ReadOnlyFileSystemIsNamedAndRead) {
  run("size=2m", [&] {
    write_step(root_, 1);
    ASSERT_EQ(mount("none", dir_.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    expect_clear(save_error(root_, 2), root_ + "/.tmp-", "Read-only file system", "Choose a folder");
    expect_clear(save_error(dir_ / "new", 2), dir_ / "new", "Read-only file system", "Choose a folder");
    EXPECT_EQ(expect_whole_latest(root_), 1);
  });
}

// Runs `body` in a child; 0 when no expectation failed there.
int in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(CheckpointRefusal, FolderOfAnotherUserIsNamed) {
  const test::TempDir dir;
  write_step(dir.path(), 1);
  ASSERT_EQ(chmod(dir.path().c_str(), 0555), 0);
  EXPECT_EQ(in_child([&] {
              // Root may write everywhere.
              if (geteuid() == 0) {
                ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
              }
              expect_clear(save_error(dir.path(), 2), dir / ".tmp-", "Permission denied", "Choose a folder");
              EXPECT_EQ(expect_whole_latest(dir.path()), 1);
            }),
            0);
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
}

// RLIMIT_FSIZE makes write() stop in the middle of a call, as a full disk does.
TEST(CheckpointRefusal, LimitOfFileSizesIsNamedAtSeveralSizes) {
  for (const rlim_t bytes : {1U, 100U, 4096U, 50'000U, 64'000U}) {
    SCOPED_TRACE(bytes);
    const test::TempDir dir;
    write_step(dir.path(), 1);
    EXPECT_EQ(in_child([&] {
                std::signal(SIGXFSZ, SIG_IGN);
                const rlimit limit{bytes, bytes};
                setrlimit(RLIMIT_FSIZE, &limit);
                expect_clear(save_error(dir.path(), 2), dir / ".tmp-", "File too large", "ulimit -f");
              }),
              0);
    EXPECT_EQ(num_leftovers(dir.path()), 0);
    EXPECT_EQ(expect_whole_latest(dir.path()), 1);
    EXPECT_EQ(save_error(dir.path(), 2), "");
    EXPECT_EQ(expect_whole_latest(dir.path()), 2);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
