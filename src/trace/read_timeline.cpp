#include "trace/read_timeline.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/str.h"
#include "comm/transport/call_info.h"
#include "trace/timeline_builder.h"
#include "trace/trace_reader.h"
#include "trireme/base/error.h"

namespace trireme::trace {
namespace {

using nlohmann::json;

/// What the object form says beside the events; a value that is not JSON, or of another type, says nothing.
json header_value(const SplitNotes& notes, const char* key) {
  const auto found = notes.header.find(key);
  return found == notes.header.end() ? json() : json::parse(found->second, nullptr, false);
}

std::string text_in(const json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>()
                                                                               : std::string{};
}

int number_in(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number_integer()) return -1;
  const auto value = object[key].get<int64_t>();
  return value >= 0 && value < INT32_MAX ? static_cast<int>(value) : -1;
}

void take_header(const SplitNotes& notes, Timeline& timeline) {
  const json info = header_value(notes, "distributedInfo");
  if (const int rank = number_in(info, "rank"); rank >= 0) timeline.rank = rank;
  timeline.world_size = number_in(info, "world_size");
  timeline.backend = text_in(info, "backend");
  const json host = header_value(notes, "host_name");
  if (host.is_string()) timeline.host = host.get<std::string>();
  const json devices = header_value(notes, "deviceProperties");
  if (devices.is_array() && !devices.empty()) timeline.device_name = text_in(devices[0], "name");
}

/// Newer PyTorch writes times relative to a base, so that they keep their digits in a double.
int64_t base_of(const SplitNotes& notes) {
  const json base = header_value(notes, "baseTimeNanoseconds");
  if (!base.is_number_integer()) return 0;
  const auto ns = base.get<int64_t>();
  return ns > 0 && ns < INT64_MAX / 4 ? ns : 0;
}

void shift(Timeline& timeline, int64_t by) {
  constexpr int64_t kLimit = INT64_MAX / 4;
  if (by == 0 || timeline.first_ns < -kLimit || timeline.last_ns > kLimit) return;
  timeline.first_ns += by;
  timeline.last_ns += by;
  for (Span& span : timeline.spans) span.start_ns += by, span.end_ns += by;
  for (Call& call : timeline.calls) call.start_ns += by, call.end_ns += by;
  for (Step& step : timeline.steps) step.start_ns += by, step.end_ns += by;
  for (OperatorCall& call : timeline.operators) call.time_ns += by;
}

/// "rank3.json", "worker_2.pt.trace.json", "trace-rank-07.json.gz": the digits behind one of the words.
int rank_in(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  for (const char* word : {"rank", "worker", "dev"}) {
    for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
      const char* digits = name.data() + at + std::string_view(word).size();
      if (*digits == '_' || *digits == '-' || *digits == '.') ++digits;
      int rank = 0;
      const auto [end, error] = std::from_chars(digits, name.data() + name.size(), rank);
      if (error == std::errc{} && rank >= 0) return rank;
    }
  }
  return -1;
}

CollectiveOp op_of(comm::OpKind op) { return collective_op(comm::to_string(op)); }

/// The fields of a damaged file may hold anything; sums of two such times must not overflow.
constexpr int64_t kLatest = INT64_MAX / 4;
int64_t wall_minus_monotonic(const profile::TraceSnapshot& snapshot) {
  const int64_t base = snapshot.wall_minus_monotonic_ns;
  return base < -kLatest || base > kLatest ? 0 : base;
}

void call_of(const profile::TraceRecord& record, const profile::TraceSnapshot& snapshot, int64_t now_ns,
             Timeline& timeline) {
  const int64_t base = wall_minus_monotonic(snapshot);
  const auto begun = static_cast<int64_t>(record.started_ns != 0 ? record.started_ns : record.queued_ns);
  const bool open = record.state < static_cast<uint32_t>(profile::CallState::kFinished);
  const auto ended = open ? now_ns : static_cast<int64_t>(record.finished_ns);
  if (begun <= 0 || begun > kLatest || ended < 0 || ended > kLatest) return;
  if (ended < begun) ++timeline.num_negative;
  if (open) ++timeline.num_open;
  Call call;
  call.start_ns = begun + base;
  call.end_ns = std::max(begun, ended) + base;
  call.op = op_of(static_cast<comm::OpKind>(record.op));
  call.sequence = static_cast<int64_t>(record.call);
  constexpr uint64_t kMostBytes = uint64_t{1} << 50;
  call.bytes_in = record.bytes <= kMostBytes ? static_cast<int64_t>(record.bytes) : -1;
  call.step = record.step;
  call.open = open;
  const bool listed = record.group < snapshot.groups.size();
  const std::vector<int> none;
  const std::vector<int>& ranks = listed ? snapshot.group_ranks[record.group] : none;
  const int32_t peer = record.root >= 0 && static_cast<size_t>(record.root) < ranks.size()
                           ? ranks[static_cast<size_t>(record.root)]
                           : record.root;
  (call.op == CollectiveOp::kSend ? call.destination : call.source) = peer;
  const auto n = static_cast<int64_t>(ranks.size());
  if (call.op == CollectiveOp::kAllGather && n < 8192) call.bytes_out = call.bytes_in * n;
  if (call.op == CollectiveOp::kReduceScatter && n > 0) call.bytes_out = call.bytes_in / n;
  call.group = listed ? record.group : static_cast<uint32_t>(snapshot.groups.size());
  const uint32_t name = static_cast<uint32_t>(record.op) + 1;
  timeline.spans.push_back({call.start_ns, call.end_ns,
                            std::min<uint32_t>(name, static_cast<uint32_t>(timeline.names.size()) - 1), 0,
                            Activity::kCommunication});
  timeline.calls.push_back(call);
}

/// On a lane of their own: the rank's thread may be inside a call's span at the same time only by an error of a file.
void add_data_waits(const profile::TraceSnapshot& snapshot, Timeline& timeline) {
  if (snapshot.data_waits.empty()) return;
  const int64_t base = wall_minus_monotonic(snapshot);
  timeline.names.emplace_back("data wait");
  if (snapshot.data_waits.size() == profile::kKeptDataWaits) {
    timeline.notices.push_back(str("holds the last ", profile::kKeptDataWaits,
                                   " waits for data; in the steps before them they count as between collectives"));
  }
  timeline.lanes.push_back({std::to_string(snapshot.pid), "1", "data", false});
  for (const profile::DataWaitSpan& wait : snapshot.data_waits) {
    if (wait.end_ns > static_cast<uint64_t>(kLatest)) continue;
    timeline.spans.push_back({static_cast<int64_t>(wait.start_ns) + base, static_cast<int64_t>(wait.end_ns) + base,
                              static_cast<uint32_t>(timeline.names.size()) - 1,
                              static_cast<uint16_t>(timeline.lanes.size() - 1), Activity::kDataWait});
  }
}

/// The traces of a folder, in order of their names.
std::vector<std::string> traces_in(const std::string& path) {
  std::error_code error;
  std::vector<std::string> found;
  for (const char* folder : {"", "trace", "traces"}) {
    const std::filesystem::path inside = std::filesystem::path(path) / folder;
    std::filesystem::directory_iterator entries(inside, error);
    for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
      const std::string name = entries->path().filename().string();
      const bool numbered = rank_in(name) >= 0 && (name.ends_with(".json") || name.ends_with(".json.gz")) &&
                            !name.ends_with("error.json");
      const bool chrome = numbered || name.ends_with(".trace.json") || name.ends_with(".trace.json.gz");
      if (chrome || (name.starts_with("rank") && name.ends_with(".trace"))) found.push_back(entries->path().string());
    }
  }
  // A run may have both; the profiler's tell more.
  const bool any_chrome =
      std::any_of(found.begin(), found.end(), [](const auto& name) { return !name.ends_with(".trace"); });
  if (any_chrome) std::erase_if(found, [](const auto& name) { return name.ends_with(".trace"); });
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Timeline read_timeline(std::unique_ptr<ByteSource> source, const std::string& name) {
  TimelineBuilder builder;
  const ReadResult result = read_events(
      std::move(source),
      [&builder](const ChromeEvent& event, EventParser& parser, std::string_view) { builder.take(event, parser); });
  Timeline timeline = builder.finish();
  timeline.source = name;
  timeline.num_bytes = result.notes.bytes;
  timeline.valid_json = result.notes.valid_json();
  timeline.lower_limit = result.notes.cut || result.notes.gave_up || result.notes.num_damaged > 0;
  timeline.notices = describe_damage(result);
  take_header(result.notes, timeline);
  timeline.merged = result.notes.header.contains("mergedRanks");
  timeline.base_ns = base_of(result.notes);
  shift(timeline, timeline.base_ns);
  if (timeline.num_negative > 0) {
    timeline.notices.push_back(str(timeline.num_negative, " events have a duration below zero, counted as 0"));
  }
  if (timeline.num_open > 0) {
    timeline.notices.push_back(str(timeline.num_open, " spans were never ended, closed at the end of the file"));
  }
  return timeline;
}

Timeline timeline_of(const profile::TraceSnapshot& snapshot, const std::string& name) {
  Timeline timeline;
  timeline.source = name;
  timeline.host = snapshot.host;
  timeline.rank = snapshot.rank;
  timeline.backend = "trireme";
  timeline.communication_only = true;
  timeline.num_events = snapshot.records.size();
  timeline.lanes.push_back({std::to_string(snapshot.pid), "0", "communication", false});
  timeline.names.emplace_back("other");
  for (int op = 0; op <= static_cast<int>(comm::OpKind::kRecv); ++op) {
    timeline.names.emplace_back(comm::to_string(static_cast<comm::OpKind>(op)));
  }
  for (size_t g = 0; g < snapshot.groups.size(); ++g) {
    const std::vector<int>& ranks = snapshot.group_ranks[g];
    timeline.groups.push_back(
        {str(snapshot.groups[g], "|", join(ranks)), snapshot.groups[g], ranks, static_cast<int64_t>(ranks.size())});
  }
  timeline.groups.push_back({"unlisted|", "not in the file's table", {}, -1});
  uint64_t now = 0;
  for (const auto& record : snapshot.records) {
    for (const uint64_t time : {record.queued_ns, record.started_ns, record.finished_ns}) {
      if (time <= static_cast<uint64_t>(kLatest)) now = std::max(now, time);
    }
  }
  for (const auto& record : snapshot.records) call_of(record, snapshot, static_cast<int64_t>(now), timeline);
  add_data_waits(snapshot, timeline);
  std::stable_sort(timeline.calls.begin(), timeline.calls.end(),
                   [](const Call& a, const Call& b) { return a.start_ns < b.start_ns; });
  const bool wrapped = !snapshot.records.empty() && snapshot.records.front().serial > 1;
  timeline.lower_limit = wrapped || snapshot.dropped > 0 || snapshot.torn > 0;
  if (!timeline.calls.empty()) {
    timeline.first_ns = timeline.calls.front().start_ns;
    for (const Call& call : timeline.calls) timeline.last_ns = std::max(timeline.last_ns, call.end_ns);
    timeline.steps = steps_of_calls(timeline.calls, wrapped);
  }
  if (wrapped) {
    timeline.notices.push_back(str("holds the last ", grouped(static_cast<int64_t>(snapshot.records.size())), " of ",
                                   grouped(static_cast<int64_t>(snapshot.records.back().serial)), " calls"));
  }
  if (!snapshot.closed && timeline.num_open > 0) {
    timeline.notices.push_back(str("the rank was killed or still runs: ", timeline.num_open,
                                   " calls had not ended, closed at the last time of the file"));
  }
  if (timeline.num_negative > 0)
    timeline.notices.push_back(str(timeline.num_negative, " calls end before they begin, counted as 0"));
  if (snapshot.records.empty()) timeline.notices.emplace_back("holds no call");
  return timeline;
}

Timeline load_timeline(const std::string& path) {
  // A pipe would block, and a device has no end; open_bytes() names what it is.
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) (void)open_bytes(path);
  std::string beginning(24, '\0');
  std::ifstream probe(path, std::ios::binary);
  probe.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  if (beginning.starts_with("TRMTRACE") || beginning.starts_with("trireme-trace-pointer")) {
    const Result<profile::TraceSnapshot> snapshot = profile::read_collective_trace(path);
    if (!snapshot.ok()) throw Error(ErrorKind::kIo, snapshot.reason() + ".");
    return timeline_of(snapshot.value(), path);
  }
  Timeline timeline = read_timeline(open_bytes(path), path);
  if (timeline.num_events == 0) {
    throw Error(
        ErrorKind::kInvalidArgument,
        str("[trace.read] '", path, "' ", timeline.notices.empty() ? "holds no event" : join(timeline.notices, "; "),
            ". A Chrome trace (JSON, or gzip of it) or a rank's collective trace is required."));
  }
  if (timeline.merged) {
    throw Error(ErrorKind::kInvalidArgument,
                str("[trace.read] '", path,
                    "' holds several ranks, made by 'trireme trace merge'; the ranks' own files are required."));
  }
  return timeline;
}

std::vector<Timeline> load_timelines(const std::vector<std::string>& paths, std::vector<std::string>& notices) {
  std::vector<Timeline> timelines;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      timelines.push_back(load_timeline(path));
      continue;
    }
    const size_t before = timelines.size();
    std::vector<std::string> why;
    for (const std::string& file : traces_in(path)) {
      try {
        timelines.push_back(load_timeline(file));
      } catch (const Error& unreadable) {
        why.push_back(str("left out: ", unreadable.what()));
      }
    }
    if (timelines.size() == before) {
      throw Error(ErrorKind::kIo,
                  why.empty()
                      ? str("[trace.read] the folder '", path,
                            "' holds no trace: neither trace/rankN.trace of a run nor rankN.json or *.trace.json. "
                            "Name a run folder, or the files.")
                      : str("[trace.read] no trace in the folder '", path, "' can be read. ", why.front()));
    }
    notices.insert(notices.end(), why.begin(), why.end());
  }
  settle_ranks(timelines);
  return timelines;
}

void settle_ranks(std::vector<Timeline>& timelines) {
  // One rank or none of several files without a number would be a guess; then the order of the files decides for all.
  for (Timeline& timeline : timelines) {
    if (timeline.rank < 0) timeline.rank = rank_in(timeline.source);
  }
  const bool unknown =
      std::any_of(timelines.begin(), timelines.end(), [](const Timeline& one) { return one.rank < 0; });
  if (unknown) {
    for (size_t i = 0; i < timelines.size(); ++i) {
      timelines[i].rank = static_cast<int>(i);
      if (timelines.size() > 1)
        timelines[i].notices.push_back(str("does not say its rank; taken as ", i, " by its place among the files"));
    }
    return;
  }
  std::map<int, std::string> taken;
  for (const Timeline& timeline : timelines) {
    const auto [at, inserted] = taken.emplace(timeline.rank, timeline.source);
    if (inserted) continue;
    throw Error(ErrorKind::kInvalidArgument,
                str("[trace.read] '", at->second, "' and '", timeline.source, "' are both of rank ", timeline.rank,
                    "; one file for each rank is required. Leave one out."));
  }
  std::sort(timelines.begin(), timelines.end(), [](const Timeline& a, const Timeline& b) { return a.rank < b.rank; });
}

}  // namespace trireme::trace
