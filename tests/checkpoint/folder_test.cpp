// Oracle: the bytes that were given to the writer. Damage is made by hand, and the older checkpoint must come back.
#include "checkpoint/folder_fixture.h"

#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

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

// 3 + 0 + 1 of 4 parts: told after each of them, upwards to all of it.
TEST(CheckpointFolder, TellsHowMuchIsWritten) {
  const test::TempDir dir;
  const std::vector<float> values = values_of(1, 400);
  const auto bytes = std::as_bytes(std::span(values));
  Contents contents{1, {}, {}};
  contents.tensors.push_back({"a", safetensors::Dtype::kF32, {300}, bytes.first(1200)});
  contents.tensors.push_back({"b", safetensors::Dtype::kF32, {0}, bytes.first(0)});
  contents.tensors.push_back({"c", safetensors::Dtype::kF32, {100}, bytes.last(400)});
  std::vector<double> told;
  write_checkpoint(dir.path(), contents, 1, [&](double fraction) { told.push_back(fraction); });
  EXPECT_THAT(told, testing::ElementsAre(0.75, 1.0));
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

}  // namespace
}  // namespace trireme::checkpoint
