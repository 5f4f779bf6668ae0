// Oracle: closed form. A valid file is damaged in a known way; the reader must give a reason, or only whole records
// that the file held, and never crash (the sanitizers watch).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "profile/trace_decode.h"
#include "profile/trace_layout.h"
#include "profile/trace_oracle.h"
#include "support/temp_dir.h"

namespace trireme::profile {
namespace {

using test::TempDir;
using testing::HasSubstr;

constexpr uint32_t kCapacity = 16;
constexpr size_t kRecords = layout::kHeaderBytes;

/// Ten records, the last one unfinished, and three groups.
std::string valid_file() {
  const TempDir dir;
  const auto trace = open_collective_trace({.path = dir / "trace", .rank = 1, .capacity = kCapacity});
  (void)trace->register_group("world", {0, 1, 2, 3});
  (void)trace->register_group("odd", {1, 3});
  (void)trace->register_group("list", {5, 1, 4, 2});
  for (uint64_t i = 1; i <= 10; ++i) {
    const uint64_t token = trace->queued(record_of(i));
    trace->started(token);
    if (i < 10) trace->finished(token, true);
  }
  std::ifstream in(dir / "trace", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Result<TraceSnapshot> decode(const std::string& bytes) { return decode_trace({bytes.data(), bytes.size()}, "damaged"); }

template <typename T>
void put(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

TEST(TraceDamage, AFileCutAnywhereGivesAReason) {
  const TempDir dir;
  const std::string file = valid_file();
  ASSERT_EQ(decode(file).value().records.size(), 10U);
  for (size_t length = 0; length < file.size(); length += length < 300 || length > 65'000 ? 1 : 997) {
    const Result<TraceSnapshot> got = decode(file.substr(0, length));
    ASSERT_FALSE(got.ok()) << length;
    ASSERT_THAT(got.reason(), HasSubstr("cut short"));
  }
  std::ofstream(dir / "cut", std::ios::binary) << file.substr(0, file.size() - 1);
  EXPECT_THAT(read_collective_trace(dir / "cut").reason(), HasSubstr("67583 bytes, 67584 are needed"));
  const std::ofstream empty(dir / "empty");
  EXPECT_THAT(read_collective_trace(dir / "empty").reason(), HasSubstr("0 bytes"));
}

TEST(TraceDamage, EachHeaderFieldIsChecked) {
  const std::string good = valid_file();
  const auto reason_with = [&](size_t offset, auto value) {
    std::string bytes = good;
    put(bytes, offset, value);
    return decode(bytes).reason();
  };
  EXPECT_THAT(reason_with(offsetof(layout::Header, magic), uint64_t{1}), HasSubstr("not a collective trace"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, version), 2U), HasSubstr("version 2"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, header_bytes), 64U), HasSubstr("header of 64"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, record_bytes), 0U), HasSubstr("records of 0"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, capacity), 0U), HasSubstr("ring of 0"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, capacity), 0xffffffffU), HasSubstr("ring of 4294967295"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, capacity), kCapacity + 1), HasSubstr("cut short"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, rank), -1), HasSubstr("rank -1"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, num_groups), 70'000U), HasSubstr("70000 groups"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, num_groups), 4U), HasSubstr("entry 3"));
  EXPECT_THAT(reason_with(offsetof(layout::Header, table_used), 61'441U), HasSubstr("61441 bytes"));
  EXPECT_THAT(reason_with(layout::kTableOffset, 0xffffffffU), HasSubstr("entry 0"));              // length of a name
  EXPECT_THAT(reason_with(layout::kTableOffset + 4, 0xffffffffU), HasSubstr("entry 0"));          // number of runs
  EXPECT_THAT(reason_with(layout::kTableOffset + 8 + 8, -1), HasSubstr("entry 0"));               // first rank of a run
  EXPECT_THAT(reason_with(layout::kTableOffset + 8 + 8 + 8, 0x7fffffffU), HasSubstr("entry 0"));  // ranks in a run
}

TEST(TraceDamage, AWrongRecordIsLeftOutAndCounted) {
  const std::string good = valid_file();
  const size_t third = kRecords + 2 * sizeof(TraceRecord);
  const auto left_out_with = [&](size_t offset, auto value) {
    std::string bytes = good;
    put(bytes, third + offset, value);
    const TraceSnapshot got = decode(bytes).value();
    return got.torn == 1 && got.records.size() == 9 && got.records[2].call == 4;
  };
  EXPECT_TRUE(left_out_with(offsetof(TraceRecord, state), layout::state_word(3, layout::kBusy)));  // killed mid-write
  EXPECT_TRUE(left_out_with(offsetof(TraceRecord, state), layout::state_word(3, 5)));
  EXPECT_TRUE(left_out_with(offsetof(TraceRecord, state), layout::state_word(19, 3)));
  EXPECT_TRUE(left_out_with(offsetof(TraceRecord, serial), uint64_t{19}));
  EXPECT_TRUE(left_out_with(offsetof(TraceRecord, serial), uint64_t{3} + (uint64_t{1} << 28)));  // beyond the counter
  EXPECT_TRUE(left_out_with(offsetof(TraceRecord, serial), uint64_t{0}));
  EXPECT_TRUE(left_out_with(offsetof(TraceRecord, root), -2));
  EXPECT_TRUE(left_out_with(offsetof(TraceRecord, started_ns), uint64_t{1}));   // before it was queued
  EXPECT_TRUE(left_out_with(offsetof(TraceRecord, finished_ns), uint64_t{5}));  // before it started
  EXPECT_FALSE(left_out_with(offsetof(TraceRecord, bytes), uint64_t{1}));       // any value is possible
}

TEST(TraceDamage, ARecordOfAnUnknownGroupIsShownWithoutOne) {
  std::string bytes = valid_file();
  put(bytes, kRecords + offsetof(TraceRecord, group), uint16_t{3});
  const TraceSnapshot got = decode(bytes).value();
  EXPECT_EQ(got.torn, 0U);
  EXPECT_EQ(got.records[0].group, kUnlistedGroup);
}

TEST(TraceDamage, TextIsMadePrintable) {
  std::string bytes = valid_file();
  bytes[layout::kTableOffset + 8] = '\x1b';
  bytes[kRecords + offsetof(TraceRecord, label)] = '\x07';
  const TraceSnapshot got = decode(bytes).value();
  EXPECT_EQ(got.groups[0], "?orld");
  EXPECT_EQ(label_of(got.records[0]).substr(0, 6), "?abel ");
}

TEST(TraceDamage, FlippedBitsNeverCrashTheReader) {
  const TempDir dir;
  const std::string good = valid_file();
  const uint32_t seed = 20'261'130;
  std::mt19937 random(seed);
  size_t rejected = 0;
  size_t torn = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bytes = good;
    const int flips = 1 << (trial % 7);
    for (int i = 0; i < flips; ++i) {
      // Mostly where something is written: header, table, records.
      size_t at = random() % bytes.size();
      if (random() % 4 != 0)
        at = random() % 3 == 0   ? random() % 192
             : random() % 2 == 0 ? layout::kTableOffset + random() % 100
                                 : kRecords + random() % (bytes.size() - kRecords);
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
    if (trial % 3 == 0) bytes.resize(bytes.size() - random() % 200 * (random() % 2));
    Result<TraceSnapshot> got = decode(bytes);
    if (trial % 50 == 0) {
      std::ofstream(dir / "flipped", std::ios::binary) << bytes;
      got = read_collective_trace(dir / "flipped");
    }
    if (!got.ok()) {
      ++rejected;
      ASSERT_THAT(got.reason(), HasSubstr("[profile.collective_trace] '")) << "seed " << seed << " trial " << trial;
      continue;
    }
    torn += got.value().torn;
    ASSERT_LE(got.value().records.size() + got.value().torn, kCapacity) << "seed " << seed << " trial " << trial;
    for (const TraceRecord& record : got.value().records) {
      ASSERT_TRUE(record.state >= 1 && record.state <= 4 && record.serial != 0)
          << "seed " << seed << " trial " << trial;
      ASSERT_TRUE(record.group == kUnlistedGroup || record.group < got.value().groups.size());
    }
  }
  EXPECT_GT(rejected, 200U);
  EXPECT_GT(torn, 40U);
}

TEST(TraceDamage, ADamagedPointerFileGivesAReason) {
  const TempDir dir;
  std::ofstream(dir / "a") << "trireme-trace-pointer 1\nhost x\n";
  EXPECT_THAT(read_collective_trace(dir / "a").reason(), HasSubstr("no line 'path FILE'"));
  // One that points to itself, or to another pointer, is not followed for ever.
  std::ofstream(dir / "b") << "trireme-trace-pointer 1\nhost x\npath " << (dir / "b") << "\n";
  EXPECT_THAT(read_collective_trace(dir / "b").reason(), HasSubstr("cut short or no trace"));
}

}  // namespace
}  // namespace trireme::profile
