// What one rank did, reduced to what questions about time need: steps, spans by activity, collectives, FLOPs of operators.
//
// All times are ns. Until align_clocks() has run they are of the rank's own clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::trace {

enum class Activity : uint8_t { kCompute, kCommunication, kCopy, kDataWait };
inline constexpr int kNumActivities = 4;

enum class CollectiveOp : uint8_t {
  kOther,
  kBarrier,
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kGather,
  kReduceScatter,
  kScatter,
  kAllToAll,
  kSend,
  kRecv,
};
[[nodiscard]] std::string_view to_string(CollectiveOp op) noexcept;  ///< "all_reduce"
/// "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "_allgather_base", "gloo:all_reduce": by the letters alone.
[[nodiscard]] CollectiveOp collective_op(std::string_view name);
/// Whether no rank can be done before all have begun, so that ends are close together and a late rank makes the others wait.
[[nodiscard]] bool synchronises(CollectiveOp op) noexcept;
/// "Float", "c10::BFloat16", "f32": bytes of one element; 0: unknown.
[[nodiscard]] int64_t dtype_bytes(std::string_view dtype);

/// A stretch of time on one lane. Lanes are the file's threads and streams.
struct Span {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t name = 0;  ///< index into Timeline::names
  uint16_t lane = 0;  ///< index into Timeline::lanes
  Activity activity = Activity::kCompute;
};

struct Lane {
  std::string pid;
  std::string tid;
  std::string name;     ///< of the thread, where the file says it
  bool device = false;  ///< a stream of a GPU
};

struct Group {
  std::string key;         ///< equal on all ranks: name and members
  std::string name;        ///< for people
  std::vector<int> ranks;  ///< global; empty: unknown
  int64_t size = -1;
};

/// One collective, send or receive of this rank.
struct Call {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t sequence = -1;  ///< number within the group, where the file says it
  int64_t bytes_in = -1;  ///< that this rank passes in; -1: unknown
  int64_t bytes_out = -1;
  int64_t step = -1;    ///< where the file says it
  int32_t source = -1;  ///< global rank: root or sender
  int32_t destination = -1;
  uint32_t group = 0;
  CollectiveOp op = CollectiveOp::kOther;
  bool open = false;  ///< had not ended when the trace was written
};

struct Step {
  int64_t number = -1;  ///< -1: the file knows no steps, and this is all of it
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

/// One call of an operator whose FLOPs are known.
struct OperatorCall {
  int64_t time_ns = 0;
  double flops = 0;
  uint32_t name = 0;
};

/// Where only the calls know steps: a step lasts from its first call to the first call of the next one. Left out: calls of step 0, which are from
/// before the first; the first, when its beginning was overwritten (`wrapped`); the last, which has no next.
[[nodiscard]] std::vector<Step> steps_of_calls(const std::vector<Call>& calls, bool wrapped);

struct Timeline {
  std::string source;  ///< the file
  std::string host;
  std::string backend;
  std::string device_name;
  int rank = -1;
  int world_size = -1;
  bool on_device = false;           ///< compute is what a GPU did, not what the CPU did
  bool communication_only = false;  ///< from a collective trace: nothing else is known
  bool merged = false;              ///< of several ranks, by `trireme trace merge`
  bool valid_json = true;
  bool lower_limit = false;  ///< the file is cut off or a ring that has overwritten its beginning
  std::vector<std::string> names;
  std::vector<Lane> lanes;
  std::vector<Span> spans;
  std::vector<Group> groups;
  std::vector<Call> calls;              ///< by start
  std::vector<Step> steps;              ///< by start, at least one when there is any span
  std::vector<OperatorCall> operators;  ///< by time
  uint64_t num_events = 0;
  uint64_t num_bytes = 0;
  uint64_t num_negative = 0;  ///< events with a duration below zero, which were given 0
  uint64_t num_open = 0;      ///< begun and never ended: closed at the last time of the file
  int64_t base_ns = 0;        ///< was added to the file's times
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  std::vector<std::string> notices;  ///< what a reader should know, without the file's name
};

}  // namespace trireme::trace
