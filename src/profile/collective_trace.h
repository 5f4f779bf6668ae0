// The one record of communication in the project: a ring of fixed-size records in a mapped file of the run folder,
// written always, readable live and after a kill. docs/formats.md shows the layout.
#pragma once

#include <cstdint>
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
  uint32_t state = 0;  ///< CallState, written last
  uint32_t step = 0;
  int32_t root = -1;   ///< root or peer, as group rank
  uint16_t group = 0;  ///< index into the header's group names
  uint8_t op = 0;      ///< comm::OpKind
  uint8_t dtype = 0;   ///< comm::DType
  uint8_t reduce = 0;  ///< comm::ReduceKind
  uint8_t num_dims = 0;
  char label[30] = {};
};
static_assert(sizeof(TraceRecord) == 128);

/// Purpose       Append-only from the writer's side: queued(), then started(), then finished() on the slot that
/// queued() returned. Thread safety queued() may be called from any thread (the slot is taken by an atomic counter);
/// the other two by whoever executes. Cost          about 50 ns a record: no system call, no lock, no allocation.
class CollectiveTrace {
 public:
  virtual ~CollectiveTrace() = default;
  [[nodiscard]] virtual uint16_t register_group(std::string_view name, const std::vector<int>& global_ranks) = 0;
  [[nodiscard]] virtual uint64_t queued(const TraceRecord& record) = 0;  ///< returns the slot
  virtual void started(uint64_t slot) noexcept = 0;
  virtual void finished(uint64_t slot, bool ok) noexcept = 0;
  [[nodiscard]] virtual const std::string& path() const = 0;
};

struct TraceOptions {
  std::string path;  ///< file to create; empty: an anonymous mapping of this process
  int rank = 0;
  uint32_t capacity = 4096;  ///< records in the ring
};
[[nodiscard]] std::unique_ptr<CollectiveTrace> open_collective_trace(const TraceOptions& options);

/// What a reader sees: header and the records in order of serial, oldest first. A record torn by a kill is left out.
struct TraceSnapshot {
  int rank = 0;
  int64_t wall_minus_monotonic_ns = 0;  ///< add to a time of a record to get CLOCK_REALTIME
  std::vector<std::string> groups;
  std::vector<std::vector<int>> group_ranks;
  std::vector<TraceRecord> records;
};
[[nodiscard]] Result<TraceSnapshot> read_collective_trace(const std::string& path);

}  // namespace trireme::profile
