// Oracle: closed form; files made here by hand, and by zlib itself for the compressed ones. Every cut of a file is
// tried.
#include "trireme/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kTwoByThree("\x00\x00\x08\x02\x00\x00\x00\x02\x00\x00\x00\x03\x01\x02\x03\x04\x05\xFF", 18);

void write_file(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

void write_gz(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

std::string message_of(const std::string& path) {
  try {
    (void)read_idx(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.what();
  }
  return "(accepted)";
}

TEST(Idx, ReadsPlainAndCompressed) {
  const test::TempDir folder;
  write_file(folder / "plain", kTwoByThree);
  write_gz(folder / "packed", kTwoByThree);
  for (const char* name : {"plain", "packed"}) {
    const IdxArray array = read_idx(folder / name);
    EXPECT_THAT(array.shape, ElementsAre(2, 3)) << name;
    EXPECT_THAT(array.values, ElementsAre(1, 2, 3, 4, 5, 255)) << name;
  }
}

TEST(Idx, RefusesEveryCutAndAddition) {
  const test::TempDir folder;
  for (size_t size = 0; size < kTwoByThree.size(); ++size) {
    write_file(folder / "cut", kTwoByThree.substr(0, size));
    EXPECT_NE(message_of(folder / "cut"), "(accepted)") << size;
  }
  write_file(folder / "long", kTwoByThree + "x");
  EXPECT_THAT(message_of(folder / "long"), HasSubstr("more than the 6 elements"));
}

TEST(Idx, RefusesEveryCutOfACompressedFile) {
  const test::TempDir folder;
  std::string large(kTwoByThree.substr(0, 4) + std::string("\x00\x00\x00\x10\x00\x00\x01\x00", 8));
  for (int i = 0; i < 4096; ++i) large += static_cast<char>(i * 7919 >> 3);
  write_gz(folder / "whole", large);
  EXPECT_EQ(read_idx(folder / "whole").values.size(), 4096U);
  const auto bytes = std::filesystem::file_size(folder / "whole");
  for (uint64_t size = 0; size < bytes; size += 13) {
    std::filesystem::copy_file(folder / "whole", folder / "cut", std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(folder / "cut", size);
    EXPECT_NE(message_of(folder / "cut"), "(accepted)") << size << " of " << bytes;
  }
}

TEST(Idx, NamesWhatIsWrong) {
  const test::TempDir folder;
  EXPECT_THAT(message_of(folder / "absent"), HasSubstr("No such file"));
  write_file(folder / "floats", std::string("\x00\x00\x0D\x01\x00\x00\x00\x01\x00\x00\x00\x00", 12));
  EXPECT_THAT(message_of(folder / "floats"), HasSubstr("type 13"));
  write_file(folder / "text", "hello world");
  EXPECT_THAT(message_of(folder / "text"), HasSubstr("first bytes are 104 101"));
  write_file(folder / "huge", std::string("\x00\x00\x08\x03\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 16));
  EXPECT_THAT(message_of(folder / "huge"), HasSubstr("more than 4 GiB"));
  write_file(folder / "lie", std::string("\x00\x00\x08\x01\x7F\xFF\xFF\xFF", 8) + "abc");
  EXPECT_THAT(message_of(folder / "lie"), HasSubstr("holds 3 elements"));
}

TEST(Idx, WaitsForNoPipe) {
  const test::TempDir folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of(folder / "pipe"), HasSubstr("it is no regular file"));
  ASSERT_TRUE(std::filesystem::create_directory(folder / "folder"));
  EXPECT_THAT(message_of(folder / "folder"), HasSubstr("it is no regular file"));
}

TEST(ImageSet, PairsImagesWithLabels) {
  const test::TempDir folder;
  write_gz(folder / "train-images-idx3-ubyte.gz",
           std::string("\x00\x00\x08\x03\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02"
                       "abcd",
                       20));
  write_file(folder / "train-labels-idx1-ubyte", std::string("\x00\x00\x08\x01\x00\x00\x00\x02\x00\x09", 10));
  const ImageSet set = read_image_set(folder.path(), "train");
  EXPECT_EQ(set.size, 2);
  EXPECT_EQ(set.height, 1);
  EXPECT_EQ(set.width, 2);
  EXPECT_EQ(set.num_classes, 10);
  const ImageSetShape shape = read_image_set_shape(folder.path(), "train");
  EXPECT_EQ(shape.size, 2);
  EXPECT_EQ(shape.height, 1);
  EXPECT_EQ(shape.width, 2);
  write_file(folder / "train-labels-idx1-ubyte", std::string("\x00\x00\x08\x01\x00\x00\x00\x01\x00", 9));
  EXPECT_THROW((void)read_image_set(folder.path(), "train"), Error);
  EXPECT_THROW((void)read_image_set_shape(folder.path(), "train"), Error);
}

}  // namespace
}  // namespace trireme::data
