#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "base/replace_file.h"
#include "base/str.h"
#include "comm/transport/call_info.h"
#include "profile/call_kinds.h"
#include "profile/chrome_trace.h"
#include "trace/flight_recorder_dump.h"
#include "trace/merge.h"
#include "trace/output_file.h"
#include "trireme/base/error.h"

namespace trireme::trace {
namespace {

/// The fields of a damaged file may hold anything; sums of two such times must not overflow.
constexpr uint64_t kLatest = INT64_MAX / 4;

std::string args_of(const profile::TraceRecord& record, const profile::TraceSnapshot& snapshot,
                    const std::string& group, const std::vector<int>& ranks) {
  const auto op = static_cast<comm::OpKind>(record.op);
  const auto dtype =
      static_cast<comm::DType>(std::min<uint8_t>(record.dtype, static_cast<uint8_t>(comm::DType::kBool)));
  const auto elements = record.bytes / comm::size_of(dtype);
  const auto n = std::max<uint64_t>(1, ranks.size());
  const uint64_t out = op == comm::OpKind::kAllGather       ? elements * n
                       : op == comm::OpKind::kReduceScatter ? elements / n
                                                            : elements;
  std::string args =
      str("\"Collective name\": \"", comm::to_string(op), "\", \"Seq\": ", record.call, ", \"Step\": ", record.step);
  args += str(", \"In msg nelems\": ", elements, ", \"Out msg nelems\": ", out, ", \"dtype\": \"",
              profile::torch_name(dtype), "\"");
  args += str(", \"Process Group Name\": ", json_quote(group), ", \"Group size\": ", ranks.size());
  args += str(", \"Process Group Ranks\": \"[", join(ranks), "]\", \"Rank\": ", snapshot.rank);
  const auto root = static_cast<size_t>(record.root);
  if (record.root >= 0) {
    const int peer = root < ranks.size() ? ranks[root] : record.root;
    args += str(", \"", op == comm::OpKind::kSend ? "Dst" : "Src", " Rank\": ", peer);
  }
  if (!label_of(record).empty()) args += str(", \"Label\": ", json_quote(label_of(record)));
  if (record.queued_ns != 0 && record.started_ns > record.queued_ns && record.started_ns <= kLatest) {
    args += str(", \"Queued us\": ", profile::decimal_us(static_cast<int64_t>(record.started_ns - record.queued_ns)));
  }
  return args;
}

}  // namespace

uint64_t write_chrome_trace(const profile::TraceSnapshot& snapshot, const std::string& path) {
  OutputFile file(path);
  profile::ChromeTraceInfo info;
  info.rank = snapshot.rank;
  info.host = snapshot.host;
  info.backend = "trireme";
  for (const std::vector<int>& ranks : snapshot.group_ranks) {
    for (const int rank : ranks) info.world_size = std::max(info.world_size, rank + 1);
  }
  uint64_t first = UINT64_MAX;
  uint64_t last = 0;
  for (const profile::TraceRecord& record : snapshot.records) {
    if (record.queued_ns > 0) first = std::min(first, record.queued_ns);
    for (const uint64_t time : {record.queued_ns, record.started_ns, record.finished_ns}) {
      if (time <= kLatest) last = std::max(last, time);
    }
  }
  for (const profile::DataWaitSpan& wait : snapshot.data_waits) first = std::min(first, wait.start_ns);
  constexpr int64_t kSecond = 1'000'000'000;
  const bool sane = std::abs(snapshot.wall_minus_monotonic_ns) < static_cast<int64_t>(kLatest);
  const int64_t clock = sane ? snapshot.wall_minus_monotonic_ns : 0;
  if (first <= kLatest) info.base_ns = (static_cast<int64_t>(first) + clock) / kSecond * kSecond;
  profile::ChromeTraceWriter writer([&file](std::string_view text) { file.write(text); }, info);
  writer.process_name(snapshot.pid, str("rank ", snapshot.rank));
  for (size_t g = 0; g < snapshot.groups.size(); ++g) {
    writer.thread_name(snapshot.pid, static_cast<int64_t>(g), "collectives of " + snapshot.groups[g]);
  }
  const std::vector<int> none;
  for (const profile::TraceRecord& record : snapshot.records) {
    const bool listed = record.group < snapshot.groups.size();
    const uint64_t begun = record.started_ns != 0 ? record.started_ns : record.queued_ns;
    if (begun > kLatest || record.finished_ns > kLatest) continue;
    profile::ChromeSpan span;
    const std::string name = str("trireme:", comm::to_string(static_cast<comm::OpKind>(record.op)));
    span.name = name;
    span.category = "collective";
    span.open = record.state < static_cast<uint32_t>(profile::CallState::kFinished);
    span.start_ns = static_cast<int64_t>(begun) + clock;
    span.end_ns = static_cast<int64_t>(span.open ? last : record.finished_ns) + clock;
    span.pid = snapshot.pid;
    span.tid = listed ? record.group : static_cast<int64_t>(snapshot.groups.size());
    const std::string args =
        args_of(record, snapshot, listed ? snapshot.groups[record.group] : "not in the file's table",
                listed ? snapshot.group_ranks[record.group] : none);
    span.args = args;
    writer.span(span);
  }
  const auto data_lane = static_cast<int64_t>(snapshot.groups.size()) + 1;
  if (!snapshot.data_waits.empty()) writer.thread_name(snapshot.pid, data_lane, "data loading");
  for (const profile::DataWaitSpan& wait : snapshot.data_waits) {
    if (wait.end_ns > kLatest) continue;
    profile::ChromeSpan span;
    span.name = "data_wait";
    span.category = "data";
    span.start_ns = static_cast<int64_t>(wait.start_ns) + clock;
    span.end_ns = static_cast<int64_t>(wait.end_ns) + clock;
    span.pid = snapshot.pid;
    span.tid = data_lane;
    writer.span(span);
  }
  writer.finish();
  file.finish();
  return writer.num_bytes();
}

ExportResult export_run(const std::string& run_dir, const std::string& out_dir, ExportFormat format, bool gzip) {
  namespace fs = std::filesystem;
  ExportResult result;
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator at(fs::path(run_dir) / "trace", error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("rank") && name.ends_with(".trace")) found.push_back(at->path().string());
  }
  if (found.empty()) {
    throw Error(ErrorKind::kIo,
                str("[trace.export] '", run_dir,
                    "' has no trace/rankN.trace; the run folder of a job that ran with Trireme is required."));
  }
  std::sort(found.begin(), found.end());
  fs::create_directories(out_dir, error);
  for (const std::string& path : found) {
    const Result<profile::TraceSnapshot> snapshot = profile::read_collective_trace(path);
    if (!snapshot.ok()) {
      result.notices.push_back(snapshot.reason());
      continue;
    }
    std::string out = str(out_dir, "/rank", snapshot.value().rank);
    if (format == ExportFormat::kChrome) {
      out += gzip ? ".json.gz" : ".json";
      const uint64_t bytes = write_chrome_trace(snapshot.value(), out);
      if (bytes > MergeOptions{}.limit_bytes) {
        result.notices.push_back(str("'", out, "' has ", bytes / 1'000'000,
                                     " MB: viewers may stay blank; 'trireme trace merge' cuts it into slices of time"));
      }
    } else if (format == ExportFormat::kFlightRecorder) {
      replace_file(out, flight_recorder_pickle(snapshot.value()), "trace.export");
    } else {
      out += ".json";
      replace_file(out, flight_recorder_json(snapshot.value()), "trace.export");
    }
    result.files.push_back(out);
  }
  if (result.files.empty())
    throw Error(ErrorKind::kIo,
                str("[trace.export] no trace of '", run_dir, "' can be read: ", join(result.notices, "; "), "."));
  return result;
}

}  // namespace trireme::trace
