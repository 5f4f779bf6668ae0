// Oracle: the format's own description (closed form bytes); Python's `safetensors` reads our files in tests/checkpoint.
// Damage: every single-byte change of the header either parses into a view within bounds or is refused as kIo.
#include "base/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "trireme/base/error.h"

namespace trireme::safetensors {
namespace {

using testing::HasSubstr;

std::span<const std::byte> as_bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string with_header(const std::string& json, const std::string& data = {}) {
  std::string file(8, '\0');
  const uint64_t size = json.size();
  std::memcpy(file.data(), &size, 8);
  return file + json + data;
}

std::string sample_file() {
  static const float weight[4] = {1, 2, 3, 4};
  static const int64_t step = 7;
  const TensorBytes tensors[] = {{"weight", Dtype::kF32, {2, 2}, std::as_bytes(std::span(weight))},
                                 {"step", Dtype::kI64, {}, std::as_bytes(std::span(&step, 1))},
                                 {"none", Dtype::kF32, {0, 3}, {}}};
  std::string file = make_header(tensors, {{"format", "pt"}});
  for (const TensorBytes& tensor : tensors) {
    file.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return file;
}

TEST(Safetensors, ReadsWhatItWrites) {
  const std::string file = sample_file();
  const FileView view = parse(as_bytes_of(file), "f");
  ASSERT_EQ(view.tensors.size(), 3U);
  const TensorView& weight = view.tensors.at("weight");
  EXPECT_EQ(weight.dtype, Dtype::kF32);
  EXPECT_THAT(weight.shape, testing::ElementsAre(2, 2));
  float values[4];
  ASSERT_EQ(weight.bytes.size(), sizeof values);
  std::memcpy(values, weight.bytes.data(), sizeof values);
  EXPECT_THAT(values, testing::ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(view.tensors.at("step").shape.empty());
  EXPECT_EQ(view.metadata.at("format"), "pt");
  // Data starts at a multiple of eight, so that readers can map it.
  EXPECT_EQ((reinterpret_cast<const char*>(weight.bytes.data()) - file.data()) % 8, 0);
}

TEST(Safetensors, WriterRefusesWhatReadersWouldNotTake) {
  const float value = 0;
  const auto bytes = std::as_bytes(std::span(&value, 1));
  const TensorBytes twice[] = {{"a", Dtype::kF32, {1}, bytes}, {"a", Dtype::kF32, {1}, bytes}};
  EXPECT_THROW((void)make_header(twice), Error);
  const TensorBytes wrong_size[] = {{"a", Dtype::kF32, {2}, bytes}};
  EXPECT_THROW((void)make_header(wrong_size), Error);
  const TensorBytes overflow[] = {{"a", Dtype::kF32, {int64_t{1} << 62, 4}, bytes}};
  EXPECT_THROW((void)make_header(overflow), Error);
  // 1.3 million names made a header of 132 MB that no reader took (safetensors, issue 668).
  const TensorBytes long_name[] = {{std::string(kMaxHeaderBytes, 'x'), Dtype::kF32, {1}, bytes}};
  EXPECT_THROW((void)make_header(long_name), Error);
}

struct BadFile {
  std::string bytes;
  const char* message;
};
class SafetensorsRefuses : public testing::TestWithParam<BadFile> {};

TEST_P(SafetensorsRefuses, AsIoErrorWithReason) {
  try {
    (void)parse(as_bytes_of(GetParam().bytes), "x.safetensors");
    FAIL() << "accepted " << GetParam().message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("x.safetensors"), HasSubstr(GetParam().message)));
  }
}

std::string entry(const char* dtype, const char* shape, const char* offsets) {
  return std::string("{\"a\":{\"dtype\":\"") + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Files, SafetensorsRefuses,
    testing::Values(BadFile{"", "it has 0 bytes"},
                    BadFile{std::string(8, '\xFF'), "header claims 18446744073709551615"},
                    BadFile{with_header("[]"), "does not start with"}, BadFile{with_header("{"), "no JSON"},
                    BadFile{with_header("{\"a\":3}"), "has no 'dtype'"},
                    BadFile{with_header(entry("F99", "[1]", "[0,4]"), "1234"), "unknown dtype"},
                    BadFile{with_header(entry("F32", "[1]", "[0,4]"), "123"), "lies at [0, 4) of 3"},
                    BadFile{with_header(entry("F32", "[1]", "[4,0]"), "1234"), "lies at [4, 0)"},
                    BadFile{with_header(entry("F32", "[2]", "[0,4]"), "1234"), "shape [2] has 4 bytes"},
                    BadFile{with_header(entry("F32", "[-1]", "[0,4]"), "1234"), "non-negative"},
                    BadFile{with_header(entry("F32", "[4611686018427387904,4]", "[0,0]")), "has 0 bytes"},
                    BadFile{with_header(entry("F32", "[1]", "[0,4]"), "12345"), "fill 4 of 5"},
                    BadFile{with_header(entry("F32", "[1]", "[1,5]"), "12345"), "gap or overlap at byte 0"},
                    BadFile{with_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                                        "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
                                        "123"),
                            "overlap"},
                    BadFile{with_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                                        "1"),
                            "appears twice"},
                    BadFile{with_header("{\"__metadata__\":{\"a\":1}}"), "no text"},
                    BadFile{with_header("{\"a\":" + std::string(100'000, '[')), "nested deeper"}));

TEST(Safetensors, DamagedHeadersNeverReadOutOfBounds) {
  const std::string good = sample_file();
  std::mt19937 random(17);  // NOLINT: a fixed seed is the point
  int refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string file = good;
    file[random() % file.size()] = static_cast<char>(random());
    if (trial % 3 == 0) file.resize(random() % file.size());
    try {
      for (const auto& [name, tensor] : parse(as_bytes_of(file), "f").tensors) {
        const auto* begin = reinterpret_cast<const char*>(tensor.bytes.data());
        if (!tensor.bytes.empty()) {
          EXPECT_GE(begin, file.data());
          EXPECT_LE(begin + tensor.bytes.size(), file.data() + file.size());
        }
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace trireme::safetensors
