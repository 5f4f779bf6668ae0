// Oracle: the bytes that were given to the writer. Damage is made by hand, and the older checkpoint must come back.
// Kills: whatever the moment, the newest checkpoint read afterwards is whole, and never older than the last whose save
// had returned.
#include "checkpoint/folder/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// Every byte follows from the step, so that a mixture of two saves would be noticed.
std::vector<float> values_of(int64_t step, size_t count) { return std::vector<float>(count, static_cast<float>(step)); }

std::string write_step(const std::string& root, int64_t step, size_t count = 1000, int keep_last = 2) {
  const std::vector<float> values = values_of(step, count);
  Contents contents{step, {}, {{"step", std::to_string(step)}}};
  contents.tensors.push_back(
      {"w", safetensors::Dtype::kF32, {static_cast<int64_t>(count)}, std::as_bytes(std::span(values))});
  return write_checkpoint(root, contents, keep_last);
}

void expect_whole(const ReadCheckpoint& read) {
  const auto bytes = read.tensors.at("w").view.bytes;
  const std::vector<float> want = values_of(read.step, bytes.size() / sizeof(float));
  EXPECT_EQ(std::memcmp(bytes.data(), want.data(), bytes.size()), 0);
  EXPECT_EQ(read.metadata.at("step"), std::to_string(read.step));
}

int num_leftovers(const std::string& root) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(root)) count += entry.path().filename().string().starts_with(".tmp-");
  return count;
}

TEST(CheckpointFolder, KeepsTheLastAndReplacesTheSameStep) {
  const test::TempDir dir;
  const std::string root = dir / "a/b";
  EXPECT_FALSE(read_latest(root).has_value());
  for (const int64_t step : {1, 9, 10, 11, 11}) write_step(root, step, static_cast<size_t>(100 + step));
  EXPECT_THAT(steps_below(root), testing::ElementsAre(11, 10));
  EXPECT_EQ(num_leftovers(root), 0);
  const auto read = read_latest(root);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->path, root + "/step-11");
  expect_whole(*read);
  EXPECT_EQ(read_latest(root + "/step-10")->step, 10);
}

struct Damage {
  const char* file;
  void (*make)(const std::string& path);
  const char* reason;
};
void flip_middle(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(fs::file_size(path) / 2));
  const int byte = file.peek();
  file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
  file.put(static_cast<char>(byte ^ 1));
}
void cut(const std::string& path) { fs::resize_file(path, fs::file_size(path) - 1); }
void remove(const std::string& path) { fs::remove(path); }

class CheckpointDamage : public testing::TestWithParam<Damage> {};
TEST_P(CheckpointDamage, FallsBackAndSaysWhy) {
  const test::TempDir dir;
  write_step(dir.path(), 1);
  const std::string newest = write_step(dir.path(), 2);
  GetParam().make(newest + '/' + GetParam().file);
  testing::internal::CaptureStderr();
  const auto read = read_latest(dir.path());
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->step, 1);
  expect_whole(*read);
  EXPECT_THAT(said, testing::AllOf(HasSubstr("step-2"), HasSubstr(GetParam().reason), HasSubstr("step-1 instead")));
}
INSTANTIATE_TEST_SUITE_P(Kinds, CheckpointDamage,
                         testing::Values(Damage{"model-00001-of-00001.safetensors", flip_middle, "its checksum is"},
                                         Damage{"model-00001-of-00001.safetensors", cut, "are required"},
                                         Damage{"model-00001-of-00001.safetensors", remove, "No such file"},
                                         Damage{"index.json", flip_middle, "does not have the checksum"},
                                         Damage{"index.json", cut, "cut off or changed"},
                                         Damage{"index.json", remove, "No such file"}));

TEST(CheckpointFolder, RefusesToGoOnFromNothingWhenAllAreDamaged) {
  const test::TempDir dir;
  cut(write_step(dir.path(), 1) + "/index.json");
  EXPECT_THROW((void)read_latest(dir.path()), Error);
}

// Oracle for the limit: RLIMIT_FSIZE of a child makes write() fail half-way (EFBIG), as a full disk does.
TEST(CheckpointFolder, FailedWriteLeavesTheOneBefore) {
  const test::TempDir dir;
  write_step(dir.path(), 1);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_step(dir.path(), 2, 1'000'000);
    } catch (const Error& error) {
      const std::string what = error.what();
      _exit(error.kind() == ErrorKind::kIo && what.find("ulimit -f") != std::string::npos ? 42 : 2);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(num_leftovers(dir.path()), 0);
  const auto kept = read_latest(dir.path());
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->step, 1);
}

TEST(CheckpointFolder, KilledAtSeededMomentsIsWhole) {
  const char* soak = std::getenv("TRIREME_SOAK");
  const int kills = soak != nullptr && std::string(soak) == "full" ? 120 : 10;
  std::mt19937 random(20261130);
  int found_leftovers = 0;
  for (int i = 0; i < kills; ++i) {
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
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));  // the seeded moment, not a wait
    kill(child, SIGKILL);
    while (read(pipes[0], &returned, sizeof returned) > 0) {
    }
    close(pipes[0]);
    waitpid(child, nullptr, 0);
    found_leftovers += num_leftovers(dir.path()) > 0 ? 1 : 0;
    const auto found = read_latest(dir.path());
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(found->step == returned || found->step == returned + 1) << found->step << " after " << returned;
    expect_whole(*found);
    write_step(dir.path(), found->step + 1);
    EXPECT_EQ(num_leftovers(dir.path()), 0);
  }
  // Otherwise all kills fell between saves, and nothing was tested.
  EXPECT_GT(found_leftovers, kills / 4);
}

}  // namespace
}  // namespace trireme::checkpoint
