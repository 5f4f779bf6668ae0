// Oracle: bytes written out by hand from the protobuf and TFRecord descriptions. TensorBoard itself reads our files in
// tests/cli/train_test.py.
#include "profile/tensorboard_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "base/crc32c.h"
#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme::profile {
namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

TEST(TensorBoardEvents, EncodesTheFieldsOfEvent) {
  // wall_time 1.0 is 0x3FF0000000000000; step 300 is the varint AC 02; 0.5f is 0x3F000000.
  const Scalar scalars[] = {{"a", 0.5}};
  EXPECT_EQ(encode_scalars_event(1.0, 300, scalars),
            bytes({0x09, 0,    0,    0,    0,    0,    0,   0xF0, 0x3F, 0x10, 0xAC, 0x02,
                   0x2A, 0x0A, 0x0A, 0x08, 0x0A, 0x01, 'a', 0x15, 0,    0,    0,    0x3F}));
  EXPECT_EQ(encode_version_event(1.0), bytes({0x09, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F, 0x1A, 13}) + "brain.Event:2");
  EXPECT_EQ(encode_restart_event(1.0, 2), bytes({0x09, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F, 0x10, 2, 0x3A, 2, 0x08, 1}));
}

uint64_t number(const std::string& text, size_t at, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, text.data() + at, size);
  return value;
}

TEST(TensorBoardEvents, FramesRecordsThatACheckedReaderWalksThrough) {
  const test::TempDir folder;
  std::string path;
  {
    TensorBoardWriter writer(folder / "a/b");
    path = writer.path();
    const Scalar scalars[] = {{"train/loss", 1.25}, {"train/accuracy", 0.5}};
    for (int step = 0; step < 10; ++step) writer.add_scalars(step, scalars);
  }
  std::ifstream in(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  size_t at = 0;
  int records = 0;
  while (at < file.size()) {
    ASSERT_LE(at + 12, file.size());
    const uint64_t length = number(file, at, 8);
    EXPECT_EQ(number(file, at + 8, 4), mask_crc32c(crc32c(file.data() + at, 8)));
    ASSERT_LE(at + 16 + length, file.size());
    EXPECT_EQ(number(file, at + 12 + length, 4), mask_crc32c(crc32c(file.data() + at + 12, length)));
    at += 16 + length;
    ++records;
  }
  EXPECT_EQ(records, 11);  // the version and ten steps
}

TEST(TensorBoardEvents, SaysWhereItCannotWrite) {
  try {
    const TensorBoardWriter writer("/proc/no/such/folder");
    FAIL() << "no throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr("/proc/no/such/folder"));
  }
}

}  // namespace
}  // namespace trireme::profile
