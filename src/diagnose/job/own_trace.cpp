#include "diagnose/job/own_trace.h"

#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "comm/transport/call_info.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/flight_recorder.h"
#include "profile/collective_trace.h"
#include "profile/trace_file.h"
#include "profile/trace_layout.h"

namespace trireme::diagnose {
namespace {

CallPhase phase_of(const profile::TraceRecord& record) {
  switch (static_cast<profile::CallState>(record.state)) {
    case profile::CallState::kStarted:
      return CallPhase::kStarted;
    case profile::CallState::kFinished:
      return CallPhase::kFinished;
    case profile::CallState::kFailed:
      return CallPhase::kFailed;
    default:
      return CallPhase::kQueued;
  }
}

Signature signature_of(const profile::TraceRecord& record) {
  const auto op = static_cast<comm::OpKind>(record.op);
  Signature out;
  out.op = std::string(comm::to_string(op));
  out.kind = kind_of_op(out.op);
  out.root = record.root;
  out.label = excerpt(profile::label_of(record));
  if (op == comm::OpKind::kBarrier) return out;
  out.dtypes = std::string(comm::to_string(static_cast<comm::DType>(record.dtype)));
  const size_t kept = std::min<size_t>(record.num_dims, std::size(record.dims));
  std::vector<int64_t> dims(record.dims, record.dims + kept);
  // What all_to_all passes in may differ from rank to rank; only its parts must fit, and the trace does not hold them.
  out.inputs.push_back(std::move(dims));
  out.cut_shape = record.num_dims > std::size(record.dims);
  if (op == comm::OpKind::kAllReduce || op == comm::OpKind::kReduceScatter) {
    out.reduce = std::string(comm::to_string(static_cast<comm::ReduceKind>(record.reduce)));
  }
  return out;
}

}  // namespace

bool is_own_trace(std::string_view head) {
  uint64_t magic = 0;
  if (head.starts_with(profile::kPointerMagic)) return true;
  if (head.size() < sizeof(magic)) return false;
  std::memcpy(&magic, head.data(), sizeof(magic));
  return magic == profile::layout::kMagic;
}

std::string read_own_trace(const std::string& path, const std::string& file, Story& story) {
  Result<profile::TraceSnapshot> read = profile::read_collective_trace(path);
  return read.ok() ? add_own_trace(std::move(read.value()), file, story) : read.reason();
}

std::string add_own_trace(profile::TraceSnapshot trace, const std::string& file, Story& story) {
  if (trace.rank < 0) return "a collective trace without a rank";
  Trail trail;
  trail.rank = trace.rank;
  trail.host = excerpt(trace.host);
  trail.file = file;
  trail.source = "collective trace";
  trail.ended = trace.closed;
  std::vector<std::string> keys;
  for (size_t i = 0; i < trace.groups.size(); ++i) {
    const std::string name = excerpt(trace.groups[i], 100);
    std::vector<int> ranks = i < trace.group_ranks.size() ? trace.group_ranks[i] : std::vector<int>{};
    if (name == "world") story.tell_world_size(static_cast<int64_t>(ranks.size()));
    keys.push_back(str(name, "|", join(ranks, ",")));
    story.trails.groups.try_emplace(keys.back(), GroupInfo{name, std::move(ranks)});
    trail.groups.try_emplace(keys.back());
  }
  for (const profile::TraceRecord& record : trace.records) {
    if (record.group >= keys.size()) continue;
    Call call;
    call.number =
        static_cast<int64_t>(std::min(record.call, uint64_t{1} << 53));  // sums with it stay far from overflow
    call.step = record.step;
    call.record = static_cast<uint32_t>(record.serial);
    call.created_ns = static_cast<int64_t>(record.queued_ns + static_cast<uint64_t>(trace.wall_minus_monotonic_ns));
    call.created_ns = std::max<int64_t>(call.created_ns, 0);
    call.phase = phase_of(record);
    Signature signature = signature_of(record);
    GroupTrail& group = trail.groups[keys[record.group]];
    std::vector<Call>& calls = signature.is_point_to_point() ? group.point_to_point : group.calls;
    call.signature = story.trails.intern(std::move(signature));
    calls.push_back(call);
  }
  story.ranks_seen.insert(trace.rank);
  story.trails.add(std::move(trail));
  const uint64_t torn = trace.torn;
  story.add_own_trace({file, std::move(trace)});
  if (torn > 1) return str(torn, " records are damaged and were left out");
  return {};
}

}  // namespace trireme::diagnose
