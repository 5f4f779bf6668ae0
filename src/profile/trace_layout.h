// The collective trace byte by byte: header, group table, records. docs/formats.md shows an example. Private to the
// writer and the reader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "profile/collective_trace.h"

namespace trireme::profile::layout {

/// "TRMTRACE" on a little-endian machine; a file of the other byte order does not match.
inline constexpr uint64_t kMagic = 0x45434152544d5254;
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kHeaderBytes = 65536;  ///< the records start here
inline constexpr size_t kTableOffset = 4096;
inline constexpr size_t kTableBytes = kHeaderBytes - kTableOffset;

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint32_t record_bytes;
  uint32_t capacity;
  int32_t rank;
  int32_t pid;
  int64_t wall_minus_monotonic_ns;
  uint32_t num_groups;  ///< written with release after the table's entry
  uint32_t table_used;  ///< bytes
  uint32_t closed;      ///< 1 once the writer has ended in order
  uint32_t unused;
  uint64_t padding;
  uint64_t last_serial;  ///< the slot counter, on a cache line of its own
  uint64_t dropped;
  std::array<uint64_t, 6> padding2;
  std::array<char, 64> host;
};
static_assert(sizeof(Header) == 192 && offsetof(Header, last_serial) == 64 && offsetof(Header, host) == 128);

/// Between header and group table: what the rank says that it is busy with (trireme/comm/busy.h), and notes of the library's. Only diagnosis
/// reads it. The version is odd while a slot changes.
inline constexpr size_t kBusyOffset = 1024;
inline constexpr int kBusySlots = 8;
inline constexpr uint32_t kBusyScope = 1;
inline constexpr uint32_t kNote = 2;
struct BusySlot {
  uint32_t version;
  uint32_t in_use;  ///< 0: free; kBusyScope, kNote
  float fraction;   ///< done, 0 to 1; below 0: not said
  int32_t tid;      ///< the thread that is busy
  int64_t since_ns;
  std::array<char, 96> what;
  uint64_t unused;
};
static_assert(sizeof(BusySlot) == 128 && kBusyOffset + kBusySlots * sizeof(BusySlot) <= kTableOffset);

/// After the busy slots: the last waits for data (trireme/profile/data_wait.h). Zeros in files of writers that know none.
inline constexpr size_t kDataWaitsOffset = kBusyOffset + kBusySlots * sizeof(BusySlot);
struct DataWait {
  uint64_t start_ns;  ///< CLOCK_MONOTONIC
  uint64_t word;      ///< duration in ns above 24 bits of a check of both
};
struct DataWaits {
  uint64_t count;  ///< ever; number n is at (n - 1) % kKeptDataWaits
  uint64_t unused;
  std::array<DataWait, kKeptDataWaits> waits;
};
static_assert(kDataWaitsOffset % 8 == 0 && kDataWaitsOffset + sizeof(DataWaits) <= kTableOffset);
inline constexpr uint64_t kMostDataWait_ns = (uint64_t{1} << 40) - 1;
/// Never 0, and another one for a start or a duration of another wait (but for one in 8 million).
[[nodiscard]] constexpr uint64_t data_wait_word(uint64_t start_ns, uint64_t duration_ns) {
  const uint64_t mixed = (start_ns ^ (duration_ns << 20)) * 0x9e3779b97f4a7c15;
  return (duration_ns << 24) | (mixed >> 41) << 1 | 1;
}

/// One entry of the group table: this, then the name's bytes padded to 4, then the runs. A run is the ranks
/// first, first + stride, ... so that a usual group of any size needs one.
struct GroupEntry {
  uint32_t name_bytes;
  uint32_t num_runs;
};
struct RankRun {
  int32_t first;
  int32_t stride;
  uint32_t count;
};
inline constexpr uint32_t kMaxGroupRanks = 1U << 20;

/// The state word of a record: the low 28 bits of its serial, then 4 bits of CallState or kBusy. The serial in it makes
/// the word change whenever the record does, which is how a reader knows that what it copied is one record.
inline constexpr uint32_t kBusy = 8;
[[nodiscard]] constexpr uint32_t state_word(uint64_t serial, uint32_t code) {
  return static_cast<uint32_t>(serial << 4) | code;
}
[[nodiscard]] constexpr uint32_t code_of(uint32_t word) { return word & 15U; }
[[nodiscard]] constexpr bool belongs_to(uint32_t word, uint64_t serial) {
  return (word >> 4) == (static_cast<uint32_t>(serial) & 0x0fffffffU);
}

/// As 64-bit words, which is how a record is copied; state and step share one.
inline constexpr size_t kWords = sizeof(TraceRecord) / 8;
inline constexpr size_t kStateWord = offsetof(TraceRecord, state) / 8;
static_assert(offsetof(TraceRecord, state) % 8 == 0 && offsetof(TraceRecord, step) == offsetof(TraceRecord, state) + 4);

}  // namespace trireme::profile::layout
