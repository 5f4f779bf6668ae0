// The one record of communication in the project: a ring of fixed-size records in a mapped file of the run folder,
// written always, readable live and after a kill. docs/formats.md shows the layout.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"

namespace trireme::profile {

enum class CallState : uint32_t { kEmpty = 0, kQueued = 1, kStarted = 2, kFinished = 3, kFailed = 4 };

/// One call of one rank. 128 bytes; times are CLOCK_MONOTONIC ns.
struct TraceRecord {
  uint64_t serial = 0;  ///< from 1, over all groups; 0: never written
  uint64_t call = 0;    ///< number within the group
  uint64_t queued_ns = 0;
  uint64_t started_ns = 0;
  uint64_t finished_ns = 0;
  uint64_t bytes = 0;  ///< this rank passes in
  int64_t dims[4] = {};
  uint32_t state = 0;  ///< CallState; in the file with the low bits of serial above it, and written last
  uint32_t step = 0;
  int32_t root = -1;     ///< root or peer, as group rank
  uint16_t group = 0;    ///< index into the header's group names
  uint8_t op = 0;        ///< OpKind of call_kinds.h
  uint8_t dtype = 0;     ///< DType
  uint8_t reduce = 0;    ///< ReduceKind
  uint8_t num_dims = 0;  ///< of the tensor; dims holds the first four
  char label[30] = {};   ///< not terminated if all 30 are used: see label_of()
};
static_assert(sizeof(TraceRecord) == 128);

[[nodiscard]] inline std::string_view label_of(const TraceRecord& record) {
  return {record.label, strnlen(record.label, sizeof(record.label))};
}

/// Purpose       Append-only from the writer's side: queued(), then started(), then finished() with what queued()
///               returned.
/// Invariants    A call that has not finished is never overwritten: its record waits in the ring until finished(), so
///               that the call that hangs is still there whatever other groups did since. Every queued() must
///               therefore be followed by finished(), also when the call failed before it started.
/// Thread safety queued(), register_group() and snapshot() may be called from any thread, at any time; started() and
///               finished() by whoever executes the call, one after the other.
/// Lifetime      The file stays when the trace is destroyed, and after a kill.
/// Cost          docs/formats.md: tens of ns a call; no system call, no lock, no allocation after construction.
class CollectiveTrace {
 public:
  virtual ~CollectiveTrace() = default;

  /// Returns the group's index for TraceRecord::group; kUnlistedGroup, with a warning, when the table of 60 KiB is
  /// full.
  [[nodiscard]] virtual uint16_t register_group(std::string_view name, const std::vector<int>& global_ranks) = 0;

  /// Stores all of `record` but serial, state and the times; queued_ns is kept if it is not 0. Returns a token for
  /// started() and finished(). 0 when the ring is full of unfinished calls: the record is dropped, and counted.
  [[nodiscard]] virtual uint64_t queued(const TraceRecord& record) noexcept = 0;
  virtual void started(uint64_t token) noexcept = 0;
  virtual void finished(uint64_t token, bool ok) noexcept = 0;

  /// Off: queued() gives 0 and nothing is recorded or counted as dropped. For measuring what recording costs.
  virtual void set_recording(bool on) noexcept = 0;

  /// The records of this moment, without going through the file.
  [[nodiscard]] virtual struct TraceSnapshot snapshot() const = 0;

  /// The mapped file; not TraceOptions::path if that is on a network file system. Empty: an anonymous mapping.
  [[nodiscard]] virtual const std::string& path() const = 0;
};

/// TraceRecord::group of a group that is not in the table.
inline constexpr uint16_t kUnlistedGroup = 0xffff;
inline constexpr uint32_t kMaxTraceCapacity = 1U << 22;

enum class TracePlace {
  kAuto,    ///< the file itself, or kMemory when its folder is on a network file system
  kFile,    ///< the file itself, wherever it is
  kMemory,  ///< a file in /dev/shm (or TMPDIR, or /tmp), and at `path` a pointer file of three lines that says where
};

struct TraceOptions {
  std::string path = {};  ///< file to create, folders too, mode 0600; empty: an anonymous mapping of this process
  int rank = 0;
  uint32_t capacity = 4096;  ///< records in the ring, at most kMaxTraceCapacity; 128 bytes each
  TracePlace place = TracePlace::kAuto;
};

/// A file that is there already is renamed to `path`.old: it may tell why the run before ended. The file has its full
/// size and a valid header from the moment on at which it has its name.
///
/// Errors  kInvalidArgument  capacity 0 or too large.   kIo  the file cannot be made: names it and the reason.
[[nodiscard]] std::unique_ptr<CollectiveTrace> open_collective_trace(const TraceOptions& options);

/// What a rank says that it is busy with (trireme/comm/busy.h).
struct BusyState {
  std::string what;
  double fraction = -1;  ///< done, 0 to 1; below 0: not said
  int tid = 0;
  int64_t since_ns = 0;  ///< CLOCK_MONOTONIC
};

/// How many waits for data a trace keeps.
inline constexpr size_t kKeptDataWaits = 126;

/// Time in which the rank waited for its next batch (trireme/profile/data_wait.h). CLOCK_MONOTONIC.
struct DataWaitSpan {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

/// What a reader sees: header and the records in order of serial, oldest first. Gaps between serials are normal.
struct TraceSnapshot {
  int rank = 0;
  int pid = 0;
  std::string host;
  bool closed = false;                  ///< the writer ended in order, not by a kill
  int64_t wall_minus_monotonic_ns = 0;  ///< add to a time of a record to get CLOCK_REALTIME
  uint64_t dropped = 0;                 ///< calls that found no free record
  uint64_t torn = 0;  ///< records left out: caught in the middle of a write (by a kill, or by this look), or damaged
  std::vector<std::string> groups;
  std::vector<std::vector<int>> group_ranks;
  std::vector<BusyState> busy;           ///< oldest first
  std::vector<BusyState> notes;          ///< what it is in the middle of, which is no excuse: "no_sync()"; oldest first
  std::vector<DataWaitSpan> data_waits;  ///< the last ones, oldest first
  std::vector<TraceRecord> records;
};

/// Live or after a kill; follows a pointer file. Never trusts the file: one that is cut short, of another version or
/// not a trace at all gives a reason; a damaged record is left out and counted in `torn`; text is made printable.
[[nodiscard]] Result<TraceSnapshot> read_collective_trace(const std::string& path);

/// Purpose       Looks at one trace again and again: only at the calls that have not finished, which costs 0.1 ms.
/// Thread safety None.
class PendingCalls {
 public:
  /// As read_collective_trace(), but `records` has only queued and started calls. One that changes at this moment may be missing.
  [[nodiscard]] Result<TraceSnapshot> read(const std::string& path);

 private:
  std::vector<char> image_;
};

}  // namespace trireme::profile
