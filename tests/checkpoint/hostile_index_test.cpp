// Case C01, folders that lie although their checksums are right. Oracle: the lie, which the error must name; the older checkpoint must
// come back, and alone the lying one must be refused. Headers of shards that lie: tests/base/safetensors_test.cpp.
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "checkpoint/folder/index.h"
#include "checkpoint/folder_fixture.h"
#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string checksum(const std::string& text) { return to_hex(checksum_of(std::as_bytes(std::span(text)))); }

// index.json with `from` replaced by `to` and a checksum that fits.
void change_index(const std::string& folder, const std::string& from, const std::string& to) {
  const std::string path = folder + '/' + kIndexName;
  std::string text = text_of(path);
  text.resize(text.rfind(",\n \"xxh3_64\""));
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << " is not in " << text;
  text.replace(at, from.size(), to);
  put(path, text + ",\n \"xxh3_64\": \"" + checksum(text) + "\"\n}\n");
}

// The shard replaced, and an index that vouches for it.
void change_shard(const std::string& folder, const std::string& shard) {
  const std::string path = folder + '/' + kShardName;
  const std::string old = text_of(path);
  put(path, shard);
  change_index(folder, "\"bytes\": " + std::to_string(old.size()), "\"bytes\": " + std::to_string(shard.size()));
  change_index(folder, checksum(old), checksum(shard));
}

std::string shard_of(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(file.data(), &size, 8);
  return file + header + std::string(data_bytes, '\0');
}

std::function<void(const std::string&)> index_says(const std::string& from, const std::string& to) {
  return [=](const std::string& folder) { change_index(folder, from, to); };
}
std::function<void(const std::string&)> shard_is(const std::string& header, size_t data_bytes) {
  return [=](const std::string& folder) { change_shard(folder, shard_of(header, data_bytes)); };
}

struct Lie {
  std::function<void(const std::string& folder)> tell;
  std::string reason;
};
class CheckpointLie : public testing::TestWithParam<Lie> {};

TEST_P(CheckpointLie, IsNamedAndTheOneBeforeComesBack) {
  const test::TempDir dir;
  const std::string newest = write_step(dir.path(), 2);
  GetParam().tell(newest);
  try {
    (void)read_latest(dir.path());
    FAIL() << "taken for a checkpoint";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(),
                testing::AllOf(HasSubstr(newest), HasSubstr(GetParam().reason), HasSubstr("Restore one")));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
  }
  write_step(dir.path(), 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(expect_whole_latest(dir.path()), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(GetParam().reason));
}

const std::string kFile = std::string("\"") + kShardName + "\"";
const std::string kPlace = "\"w\": " + kFile;

INSTANTIATE_TEST_SUITE_P(
    Index, CheckpointLie,
    testing::Values(Lie{index_says(kFile + ": {", "\"../step-1/x\": {"), "no name of a file beside it"},
                    Lie{index_says(kFile + ": {", "\"/etc/passwd\": {"), "no name of a file beside it"},
                    Lie{index_says(kFile + ": {", "\"..\": {"), "no name of a file beside it"},
                    Lie{index_says(kFile + ": {", "\"\": {"), "no name of a file beside it"},
                    Lie{index_says(kFile + ": {", "\"index.json\\u0000\": {"), "no name of a file beside it"},
                    Lie{index_says(kFile + ": {", "\"index.json\": {"), "no name of a file beside it"},
                    Lie{index_says(kPlace, "\"w\": \"../step-1/x\""), "none of its files"},
                    Lie{index_says(kPlace, kPlace + ", \"v\": " + kFile), "tensor 'v' is not in"},
                    Lie{index_says(kPlace, "\"v\": " + kFile), "a tensor 'w' that the index does not place there"},
                    Lie{index_says(kPlace, kPlace + ", " + kPlace), "\"w\" appears twice"},
                    Lie{index_says("\"step\": 2", "\"step\": 2, \"step\": 2"), "\"step\" appears twice"},
                    Lie{index_says("\"bytes\": ", "\"bytes\": 7, \"bytes\": "), "\"bytes\" appears twice"},
                    Lie{index_says("\"bytes\": ", "\"bytes\": -"), "non-negative integer"},
                    Lie{index_says("\"bytes\": ", "\"bytes\": 0."), "non-negative integer"},
                    Lie{index_says("\"bytes\": ", "\"bytes\": 9999999999999999"), "non-negative integer"},
                    Lie{index_says("\"bytes\": ", "\"bytes\": 9"), "are required"},
                    Lie{index_says("\"step\": 2", "\"step\": -2"), "non-negative integer"},
                    Lie{index_says("\"step\": 2", "\"step\": 2e300"), "non-negative integer"},
                    Lie{index_says("\"step\": 2", "\"step\": 3"), "step 3 in the folder of step 2"},
                    Lie{index_says("\"schema\": 1", "\"schema\": 2"), "schema 2"},
                    Lie{index_says("\"schema\": 1", "\"schema\": " + std::string(100'000, '[')), "nested deeper"},
                    Lie{index_says("\"schema\": 1,", ""), "no index of a checkpoint"},
                    Lie{index_says("\"metadata\": {", "\"metadata\": {\"x\": 3,"), "no index of a checkpoint"}));

const std::string kGood = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
std::string with(const std::string& from, const std::string& to) {
  return std::string(kGood).replace(kGood.find(from), from.size(), to);
}
INSTANTIATE_TEST_SUITE_P(
    Shard, CheckpointLie,
    testing::Values(Lie{[](const std::string& folder) { change_shard(folder, ""); }, "it has 0 bytes"},
                    Lie{[](const std::string& folder) { put(folder + '/' + kShardName, ""); }, "it has 0 bytes; "},
                    Lie{shard_is(kGood, 7), "lies at [0, 8) of 7"}, Lie{shard_is(kGood, 9), "fill 8 of 9"},
                    Lie{shard_is(with("[0,8]", "[8,16]"), 8), "lies at [8, 16) of 8"},
                    Lie{shard_is(with("[0,8]", "[-8,0]"), 8), "non-negative"},
                    Lie{shard_is(with("[2]", "[4611686018427387906]"), 8), "has 8 bytes"},
                    Lie{shard_is(with("F32", "F64"), 8), "has 8 bytes"},
                    Lie{shard_is(with("F32", "F31"), 8), "unknown dtype"},
                    Lie{shard_is(with("}}", "},\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"), 8),
                        "appears twice"},
                    Lie{shard_is(with("\"w\"", "\"v\""), 8), "a tensor 'v' that the index does not place there"}));

INSTANTIATE_TEST_SUITE_P(Files, CheckpointLie,
                         testing::Values(Lie{[](const std::string& folder) {
                                               fs::resize_file(folder + "/index.json", uint64_t{1} << 40U);
                                             },
                                             "it has 1099511627776 bytes"},
                                         Lie{[](const std::string& folder) {
                                               fs::remove(folder + "/index.json");
                                               fs::create_directory(folder + "/index.json");
                                             },
                                             "Is a directory"},
                                         // Opening it must not wait for somebody who writes into it.
                                         Lie{[](const std::string& folder) {
                                               fs::remove(folder + "/index.json");
                                               ASSERT_EQ(mkfifo((folder + "/index.json").c_str(), 0600), 0);
                                             },
                                             "cannot read it"},
                                         Lie{[](const std::string& folder) {
                                               fs::remove(folder + '/' + kShardName);
                                               ASSERT_EQ(mkfifo((folder + '/' + kShardName).c_str(), 0600), 0);
                                             },
                                             kShardName}));

}  // namespace
}  // namespace trireme::checkpoint
