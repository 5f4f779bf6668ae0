// Writes the dumps of invented jobs of three ranks, for flight_recorder_torch_test.py: flight_recorder_tool SCENARIO FOLDER
//
// healthy   every operation, once over the group and once between two ranks
// missing   rank 2 has not come to call 3
// swapped   rank 1 broadcasts where the others reduce
// shape     rank 1 reduces another shape in call 2
// state     rank 2 has started call 2, the others have finished it
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/str.h"
#include "comm/transport/call_info.h"
#include "trace/flight_recorder_dump.h"

namespace {

using trireme::comm::DType;
using trireme::comm::OpKind;
using trireme::profile::CallState;
using trireme::profile::TraceRecord;
using trireme::profile::TraceSnapshot;

constexpr int kRanks = 3;

TraceRecord& add(TraceSnapshot& trace, OpKind op, uint64_t call, std::initializer_list<int64_t> dims) {
  TraceRecord record;
  record.serial = trace.records.size() + 1;
  record.call = call;
  record.queued_ns = 1000 * record.serial;
  record.started_ns = record.queued_ns + 100;
  record.finished_ns = record.started_ns + 500;
  record.op = static_cast<uint8_t>(op);
  record.dtype = static_cast<uint8_t>(DType::kF32);
  record.state = static_cast<uint32_t>(CallState::kFinished);
  record.bytes = 4;
  for (const int64_t dim : dims) {
    record.dims[record.num_dims++] = dim;
    record.bytes *= static_cast<uint64_t>(dim);
  }
  trace.records.push_back(record);
  return trace.records.back();
}

TraceSnapshot trace_of(const std::string& scenario, int rank) {
  TraceSnapshot trace;
  trace.rank = rank;
  trace.wall_minus_monotonic_ns = 1'700'000'000'000'000'000;
  trace.groups = {"world"};
  trace.group_ranks = {{0, 1, 2}};
  add(trace, OpKind::kAllReduce, 1, {6, 4}).step = 7;
  const bool other_shape = scenario == "shape" && rank == 1;
  TraceRecord& second = add(trace, scenario == "swapped" && rank == 1 ? OpKind::kBroadcast : OpKind::kAllReduce, 2,
                            {other_shape ? 5 : 6, 4});
  if (scenario == "state" && rank == 2) second.state = static_cast<uint32_t>(CallState::kStarted);
  if (scenario == "missing") {
    if (rank != 2) add(trace, OpKind::kAllReduce, 3, {6, 4}).state = static_cast<uint32_t>(CallState::kStarted);
    return trace;
  }
  if (scenario != "healthy") return trace;
  add(trace, OpKind::kBroadcast, 3, {6}).root = 2;
  add(trace, OpKind::kAllGather, 4, {6, 4});
  add(trace, OpKind::kReduceScatter, 5, {6, 4});
  add(trace, OpKind::kReduceScatter, 6, {4, 6});
  add(trace, OpKind::kAllToAll, 7, {static_cast<int64_t>(rank) + 3});
  add(trace, OpKind::kBarrier, 8, {});
  return trace;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::filesystem::path folder = argv[2];
  for (int rank = 0; rank < kRanks; ++rank) {
    const TraceSnapshot trace = trace_of(argv[1], rank);
    std::ofstream(folder / trireme::str("dump_", rank), std::ios::binary)
        << trireme::trace::flight_recorder_pickle(trace);
    std::ofstream(folder / trireme::str("json_", rank)) << trireme::trace::flight_recorder_json(trace);
  }
  return 0;
}
