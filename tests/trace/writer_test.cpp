// Oracle: the strict JSON parser of nlohmann, and closed forms.
#include "profile/chrome_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/pickle_reader.h"
#include "comm/transport/call_info.h"
#include "profile/collective_trace.h"
#include "support/temp_dir.h"
#include "trace/merge.h"
#include "trace/read_timeline.h"

namespace trireme::trace {
namespace {

using nlohmann::json;

std::string written(const std::function<void(profile::ChromeTraceWriter&)>& fill, bool finish = true) {
  std::string text;
  profile::ChromeTraceWriter writer([&text](std::string_view piece) { text += piece; },
                                    {.rank = 3, .world_size = 8, .host = "n\"1", .base_ns = 1'000'000'000});
  fill(writer);
  if (finish) writer.finish();
  return text;
}

// R03: names with quotes, backslashes, control characters and bytes that are not UTF-8 come back from a strict parser.
TEST(ChromeWriter, NamesComeBackFromAStrictParser) {
  const std::vector<std::string> names = {"plain",
                                          "say \"hi\"",
                                          "back\\slash\\",
                                          "line\nfeed\ttab\r",
                                          "\xE2\x82\xAC \xC3\xA9",
                                          std::string("nul\0l", 5),
                                          "\x01\x1f\x7f",
                                          "</script>",
                                          ""};
  const std::string text = written([&names](auto& writer) {
    for (const std::string& name : names)
      writer.span({.name = name, .category = name, .start_ns = 2'000'000'000, .end_ns = 2'000'000'001});
    writer.span({.name = "bad \xff\xfe\xc3", .category = "x", .start_ns = 0, .end_ns = 0});
    writer.thread_name(1, 2, "t\"");
  });
  const json trace = json::parse(text);
  ASSERT_EQ(trace["traceEvents"].size(), names.size() + 3);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(trace["traceEvents"][i]["name"], names[i]);
    EXPECT_EQ(trace["traceEvents"][i]["cat"], names[i]);
  }
  EXPECT_EQ(trace["traceEvents"][names.size()]["name"], "bad \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(trace["distributedInfo"]["rank"], 3);
  EXPECT_EQ(trace["host_name"], "n\"1");
}

// R01: a clock that stepped back gives no negative duration; spans that did not end are marked.
TEST(ChromeWriter, NoDurationIsBelowZero) {
  const json trace = json::parse(written([](auto& writer) {
    writer.span({.name = "back", .category = "c", .start_ns = 1'000'005'000, .end_ns = 1'000'004'999});
    writer.span({.name = "open",
                 .category = "c",
                 .start_ns = 1'000'000'001,
                 .end_ns = 1'000'002'346,
                 .open = true,
                 .args = "\"a\": 1"});
    EXPECT_EQ(writer.num_stepped_back(), 1U);
  }));
  const json& events = trace["traceEvents"];
  EXPECT_EQ(events[0]["dur"], 0.0);
  EXPECT_EQ(events[0]["args"]["Clock stepped back"], true);
  EXPECT_EQ(events[1]["ts"], 0.001);
  EXPECT_EQ(events[1]["dur"], 2.345);
  EXPECT_EQ(events[1]["args"]["Open"], true);
  EXPECT_EQ(events[1]["args"]["a"], 1);
  EXPECT_EQ(profile::decimal_us(-1), "-0.001");
  EXPECT_EQ(profile::decimal_us(INT64_MIN), "-9223372036854775.808");
}

// R09 and c06: what a killed writer left gives its whole events, at every length.
TEST(ChromeWriter, AFileThatWasCutIsRead) {
  const std::string text = written([](auto& writer) {
    for (int i = 0; i < 5; ++i)
      writer.span({.name = "n", .category = "cpu_op", .start_ns = 1'000'000'000 + i, .end_ns = 1'000'000'001 + i});
  });
  uint64_t before = 0;
  for (size_t size = 1; size < text.size(); ++size) {
    const Timeline timeline = read_timeline(bytes_of(std::string_view(text).substr(0, size)), "rank3.json");
    EXPECT_GE(timeline.num_events, before);
    EXPECT_LE(timeline.num_events, 5U);
    before = timeline.num_events;
    if (size < text.size() - 3) {
      EXPECT_TRUE(timeline.lower_limit) << size;
    }
  }
  EXPECT_EQ(before, 5U);
}

profile::TraceRecord record(uint64_t call, uint32_t step, comm::OpKind op, uint64_t bytes) {
  profile::TraceRecord made;
  made.call = call;
  made.step = step;
  made.op = static_cast<uint8_t>(op);
  made.dtype = static_cast<uint8_t>(comm::DType::kF32);
  made.bytes = bytes;
  return made;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// What a run folder holds, exported and read again, is what is read from it directly.
TEST(Export, ReadsBackAsItself) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "trace");
  for (int rank = 0; rank < 2; ++rank) {
    const auto trace =
        profile::open_collective_trace({.path = dir / ("trace/rank" + std::to_string(rank) + ".trace"), .rank = rank});
    const uint16_t group = trace->register_group("dp \"x\"", {0, 1});
    for (uint64_t call = 1; call <= 6; ++call) {
      profile::TraceRecord made =
          record(call, static_cast<uint32_t>((call + 1) / 2),
                 call % 2 == 0 ? comm::OpKind::kAllReduce : comm::OpKind::kBroadcast, 4000 * call);
      made.group = group;
      made.root = call % 2 == 0 ? -1 : 1;
      const uint64_t token = trace->queued(made);
      trace->started(token);
      if (call < 6 || rank == 0) trace->finished(token, true);  // rank 1 hangs in its last call
    }
  }
  const ExportResult exported = export_run(dir.path(), dir / "out", ExportFormat::kChrome, true);
  ASSERT_EQ(exported.files, (std::vector<std::string>{dir / "out/rank0.json.gz", dir / "out/rank1.json.gz"}));
  for (int rank = 0; rank < 2; ++rank) {
    const Timeline ring = load_timeline(dir / ("trace/rank" + std::to_string(rank) + ".trace"));
    const Timeline chrome = load_timeline(exported.files[static_cast<size_t>(rank)]);
    EXPECT_TRUE(chrome.valid_json);
    EXPECT_EQ(chrome.rank, rank);
    EXPECT_EQ(chrome.host, ring.host);
    EXPECT_EQ(chrome.num_open, rank == 0 ? 0U : 1U);
    ASSERT_EQ(chrome.calls.size(), 6U);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(chrome.calls[i].start_ns, ring.calls[i].start_ns);
      EXPECT_EQ(chrome.calls[i].end_ns, ring.calls[i].end_ns);
      EXPECT_EQ(chrome.calls[i].op, ring.calls[i].op);
      EXPECT_EQ(chrome.calls[i].bytes_in, ring.calls[i].bytes_in);
      EXPECT_EQ(chrome.calls[i].sequence, static_cast<int64_t>(i) + 1);
      EXPECT_EQ(chrome.calls[i].source, i % 2 == 0 ? 1 : -1);
      EXPECT_EQ(chrome.calls[i].step, ring.calls[i].step);
      EXPECT_EQ(chrome.groups[chrome.calls[i].group].ranks, (std::vector<int>{0, 1}));
    }
    EXPECT_EQ(ring.calls.back().open, rank == 1);
  }
  // The same as dumps of c10d's flight recorder; that its own reader takes them is trace.flight_recorder_torch.
  const ExportResult dumps = export_run(dir.path(), dir / "dumps", ExportFormat::kFlightRecorder, false);
  ASSERT_EQ(dumps.files, (std::vector<std::string>{dir / "dumps/rank0", dir / "dumps/rank1"}));
  const ExportResult texts = export_run(dir.path(), dir / "dumps", ExportFormat::kFlightRecorderJson, false);
  ASSERT_EQ(texts.files, (std::vector<std::string>{dir / "dumps/rank0.json", dir / "dumps/rank1.json"}));
  for (size_t rank = 0; rank < 2; ++rank) {
    const auto document = pickle::read(std::make_shared<const std::string>(text_of(dumps.files[rank]))).value();
    const nlohmann::json json = nlohmann::json::parse(text_of(texts.files[rank]));
    const pickle::Value* entries = document->root().find("entries");
    ASSERT_NE(entries, nullptr);
    ASSERT_EQ(entries->items.size(), 6U);
    ASSERT_EQ(json.at("entries").size(), 6U);
    const char* state = rank == 0 ? "completed" : "started";
    EXPECT_EQ(entries->items.back()->find("state")->str(), state);
    EXPECT_EQ(json.at("entries").back().at("state"), state);
    EXPECT_EQ(entries->items.back()->find("collective_seq_id")->integer, 6);
  }
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// Strict JSON whatever came in: B without E, durations below zero, arguments that are no JSON, flow ids of two ranks, pids that are text.
TEST(Merge, IsStrictJsonAndKeepsRanksApart) {
  const test::TempDir dir;
  const std::string events = R"({"ph": "B", "name": "b", "cat": "x", "pid": 7, "tid": 1, "ts": 5},
    {"ph": "X", "name": "neg", "pid": "GPU \"0\"", "tid": "s", "ts": 6, "dur": -3}, {"ph": "X", "name": "bad", "pid": 7, "tid": 1, "ts": 7, "dur": 1, "args": {"x": nan}},
    {"ph": "s", "id": 12, "name": "f", "cat": "ac2g", "pid": 7, "tid": 1, "ts": 8}, {"ph": "f", "id": "0xab", "name": "f", "cat": "ac2g", "pid": 7, "tid": 1, "ts": 9},
    {"ph": "X", "name": "no lane", "ts": 10, "dur": 1}, {"ph": "E", "pid": 99, "tid": 1, "ts": 11}, {"ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "args": {"name": "main"}})";
  write_text(dir / "rank0.json", "[" + events + "]");
  write_text(dir / "rank4.json", R"({"traceEvents": [)" + events + "]}");
  const MergeResult result = merge_traces({dir / "rank0.json", dir / "rank4.json"}, dir / "all.json", {});
  ASSERT_EQ(result.files, std::vector<std::string>{dir / "all.json"});
  EXPECT_EQ(result.num_left_out, 2U);
  const json trace = json::parse(text_of(dir / "all.json"));
  std::map<std::string, int> count;
  std::set<std::pair<int64_t, int64_t>> ids;
  for (const json& event : trace["traceEvents"]) {
    ++count[event["ph"].get<std::string>()];
    EXPECT_TRUE(event["pid"] == 0 || event["pid"] == 4) << event;
    EXPECT_TRUE(event["tid"].is_number()) << event;
    if (event.contains("dur")) {
      EXPECT_GE(event["dur"].get<double>(), 0);
    }
    if (event.contains("id")) ids.emplace(event["pid"].get<int64_t>(), event["id"].get<int64_t>());
  }
  EXPECT_EQ(count["B"], 2);
  EXPECT_EQ(count["E"], 2);  // those that close b; the one that ends nothing is gone
  EXPECT_EQ(count["X"], 4);
  EXPECT_EQ(ids.size(), 4U);
  EXPECT_THROW((void)merge_traces({dir / "rank0.json"}, dir / "rank0.json", {}), Error);
  EXPECT_THROW((void)merge_traces({dir / "all.json"}, dir / "x.json", {}), Error);
  EXPECT_FALSE(std::filesystem::exists(dir / "x.json.new"));
}

// Above the limit: slices of time whose events together are all events, each within the limit.
TEST(Merge, LargeTracesBecomeSlices) {
  const test::TempDir dir;
  for (int rank = 0; rank < 2; ++rank) {
    std::string text = "[";
    for (int i = 0; i < 2000; ++i) {
      text += std::string(i > 0 ? "," : "") + R"({"ph": "X", "cat": "cpu_op", "name": "op )" + std::to_string(i) +
              R"(", "pid": 1, "tid": 1, "ts": )" + std::to_string(i * 10) + R"(, "dur": 5})";
    }
    write_text(dir / ("rank" + std::to_string(rank) + ".json"), text + "]");
  }
  const MergeResult whole = merge_traces({dir.path()}, dir / "whole.json", {});
  const MergeResult sliced =
      merge_traces({dir / "rank0.json", dir / "rank1.json"}, dir / "part.json", {.limit_bytes = 100'000});
  ASSERT_GE(sliced.files.size(), 3U);
  EXPECT_EQ(sliced.files[0], dir / "part.1.json");
  double last_end = -1;
  size_t spans = 0;
  for (size_t i = 0; i < sliced.files.size(); ++i) {
    EXPECT_LE(sliced.file_bytes[i], 100'000U);
    const json trace = json::parse(text_of(sliced.files[i]));
    double first = 1e18;
    double last = -1;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      ++spans;
      first = std::min(first, event["ts"].get<double>());
      last = std::max(last, event["ts"].get<double>());
    }
    EXPECT_GE(first, last_end);
    last_end = last;
  }
  EXPECT_EQ(spans, 4000U);
  EXPECT_EQ(whole.files.size(), 1U);
  EXPECT_FALSE(sliced.notices.empty());
}

}  // namespace
}  // namespace trireme::trace
