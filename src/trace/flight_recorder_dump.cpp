#include "trace/flight_recorder_dump.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/pickle_writer.h"
#include "base/str.h"
#include "comm/transport/call_info.h"
#include "profile/call_kinds.h"

namespace trireme::trace {
namespace {

using Json = nlohmann::ordered_json;
using comm::DType;
using comm::OpKind;
using profile::CallState;
using profile::TraceRecord;

/// The first version whose readers match collectives inside a coalesced group; fr_trace 2.13 writes and expects it.
constexpr const char* kVersion = "2.10";

bool is_point_to_point(uint8_t op) {
  return static_cast<OpKind>(op) == OpKind::kSend || static_cast<OpKind>(op) == OpKind::kRecv;
}

// fr_trace knows these names only.
std::string operation(const TraceRecord& record, int group_rank) {
  switch (static_cast<OpKind>(record.op)) {
    case OpKind::kBarrier:
      return "barrier";
    case OpKind::kAllReduce:
      return "all_reduce";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kAllGather:
      return "_all_gather_base";
    case OpKind::kReduceScatter:
      return "_reduce_scatter_base";
    case OpKind::kAllToAll:
      return "all_to_all";
    case OpKind::kSend:
      return str("send ", group_rank, "->", record.root);
    case OpKind::kRecv:
      return str("recv ", group_rank, "<-", record.root);
  }
  return str("operation_", static_cast<int>(record.op));
}

/// The dims of a damaged file may be anything: a product that is too large is the largest.
int64_t times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

std::vector<int64_t> dims_in(const TraceRecord& record) {
  std::vector<int64_t> dims(record.dims, record.dims + std::min<int>(record.num_dims, 4));
  if (record.num_dims > 4) {  // what is not kept, as one dimension, so that the number of elements is right
    auto kept = static_cast<int64_t>(comm::size_of(static_cast<DType>(record.dtype)));
    for (const int64_t dim : dims) kept = times(kept, std::max<int64_t>(dim, 1));
    dims.push_back(static_cast<int64_t>(record.bytes) / std::max<int64_t>(kept, 1));
  }
  return dims;
}

std::vector<int64_t> dims_out(const TraceRecord& record, int64_t group_size) {
  std::vector<int64_t> dims = dims_in(record);
  if (dims.empty()) return dims;
  const auto op = static_cast<OpKind>(record.op);
  if (op == OpKind::kAllGather) dims[0] = times(dims[0], group_size);
  if (op == OpKind::kReduceScatter) {
    if (dims[0] % group_size == 0) {
      dims[0] /= group_size;
    } else {
      int64_t elements = 1;
      for (const int64_t dim : dims) elements = times(elements, dim);
      dims = {elements / group_size};
    }
  }
  return dims;
}

const char* state_of(const TraceRecord& record) {
  const auto state = static_cast<CallState>(record.state);
  if (state == CallState::kFinished) return "completed";
  return record.started_ns != 0 ? "started" : "scheduled";
}

Json document_of(const profile::TraceSnapshot& trace) {
  Json document = {{"version", kVersion}, {"pg_config", Json::object()}, {"entries", Json::array()}};
  for (size_t g = 0; g < trace.groups.size(); ++g) {
    const std::string& name = trace.groups[g];
    document["pg_config"][name] = {
        {"name", name}, {"desc", name}, {"ranks", str("[", join(trace.group_ranks[g]), "]")}};
  }
  const auto wall = [&](uint64_t monotonic_ns) -> Json {
    if (monotonic_ns == 0) return nullptr;
    return static_cast<int64_t>(monotonic_ns) + trace.wall_minus_monotonic_ns;
  };
  std::vector<uint64_t> collectives(trace.groups.size(), 0);  // the number of each group's last one
  for (const TraceRecord& record : trace.records) {
    if (record.group >= trace.groups.size()) continue;  // of a group whose members are not known
    const std::vector<int>& ranks = trace.group_ranks[record.group];
    const auto mine = std::find(ranks.begin(), ranks.end(), trace.rank);
    const bool p2p = is_point_to_point(record.op);
    if (!p2p) collectives[record.group] = record.call;
    const auto group_size = static_cast<int64_t>(std::max<size_t>(ranks.size(), 1));
    const bool finished = static_cast<CallState>(record.state) == CallState::kFinished;
    Json entry = {{"record_id", record.serial - 1},
                  {"pg_id", record.group},
                  {"process_group", {trace.groups[record.group], trace.groups[record.group]}},
                  {"collective_seq_id", p2p ? collectives[record.group] : record.call},
                  {"p2p_seq_id", p2p ? record.call : 0},
                  {"op_id", record.serial},
                  {"profiling_name", "gloo:" + operation(record, static_cast<int>(mine - ranks.begin()))},
                  {"time_created_ns", wall(record.queued_ns)},
                  {"input_sizes", {dims_in(record)}},
                  {"input_dtypes", {profile::torch_name(static_cast<DType>(record.dtype))}},
                  {"output_sizes", {dims_out(record, group_size)}},
                  {"output_dtypes", {profile::torch_name(static_cast<DType>(record.dtype))}},
                  {"state", state_of(record)},
                  {"time_discovered_started_ns", wall(record.started_ns)},
                  {"time_discovered_completed_ns", finished ? wall(record.finished_ns) : Json(nullptr)},
                  // c10d: no longer watched, though it did not complete; that is how a failed call shows.
                  {"retired", finished || static_cast<CallState>(record.state) == CallState::kFailed},
                  {"timeout_ms", 0},
                  {"is_p2p", p2p},
                  {"frames", Json::array()}};
    if (finished && record.started_ns != 0 && record.finished_ns >= record.started_ns) {
      entry["duration_ms"] = static_cast<double>(record.finished_ns - record.started_ns) / 1e6;
    }
    // Ours, beside what c10d writes; its readers pass over keys that they do not know.
    entry["trireme_step"] = record.step;
    entry["trireme_label"] = std::string(profile::label_of(record));
    document["entries"].push_back(std::move(entry));
  }
  return document;
}

void write(pickle::Writer& to, const Json& value, bool as_tuple = false) {
  switch (value.type()) {
    case Json::value_t::object:
      to.begin_dict();
      for (const auto& [key, item] : value.items()) {
        to.text(key);
        write(to, item, key == "process_group");  // the one tuple of c10d's dumps
      }
      to.end();
      return;
    case Json::value_t::array:
      as_tuple ? to.begin_tuple() : to.begin_list();
      for (const Json& item : value) write(to, item);
      to.end();
      return;
    case Json::value_t::string:
      return to.text(value.get_ref<const std::string&>());
    case Json::value_t::boolean:
      return to.boolean(value.get<bool>());
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return to.integer(value.get<int64_t>());
    case Json::value_t::number_float:
      return to.real(value.get<double>());
    default:
      return to.none();
  }
}

}  // namespace

std::string flight_recorder_pickle(const profile::TraceSnapshot& trace) {
  std::string out;
  pickle::Writer writer(out);
  write(writer, document_of(trace));
  writer.finish();
  return out;
}

std::string flight_recorder_json(const profile::TraceSnapshot& trace) {
  return document_of(trace).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::trace
