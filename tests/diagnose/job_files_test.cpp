// Oracle: by construction; every file gets one clear word and nothing crashes. The collected logs and traces have their answers beside them
// (expected.tsv).
#include <sys/stat.h>

#include <random>

#include "diagnose/job/flight_recorder.h"
#include "diagnose/job/keyword_set.h"
#include "diagnose/job/reason.h"
#include "diagnose/job_fixture.h"
#include "profile/collective_trace.h"

namespace trireme::diagnose {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace std::string_literals;

// Oracle: std::string_view::find on the same texts.
TEST(KeywordSet, FindsWhatAPlainSearchFinds) {
  const std::vector<std::string_view> words = {"aba", "ab", "bab", "b", "NCCL WARN", "aaaa", "\xff\x01"};
  const KeywordSet set(words);
  std::mt19937 random(11);
  const std::string letters = "abab\xff\x01NCL WR";
  for (int round = 0; round < 5000; ++round) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    if (round % 7 == 0) text += "NCCL WARN";
    const auto found = set.find(text);
    for (size_t i = 0; i < words.size(); ++i)
      EXPECT_EQ(KeywordSet::has(found, i), text.find(words[i]) != std::string::npos) << text << " / " << words[i];
  }
}

TEST(JobFiles, DamagedFilesGetAWord) {
  const std::string pickle = "\x80\x02}q\0X\x07\0\0\0entries"s;
  const Report report = diagnosed({{"cut_0", pickle},
                                   {"attack_1",
                                    "\x80\x02"
                                    "cos\nsystem\nX\x04\0\0\0echo\x85R."s},
                                   {"empty", ""},
                                   {"other_2", "\x80\x02]."s},
                                   {"cut.json", R"({"version": "2.7", "entries": [{"profiling_name": "nccl:all_re)"},
                                   {"zeros", std::string(5000, '\0')},
                                   {"trace_3", "TRMTRACE" + std::string(100, 'x')},
                                   {"binary",
                                    "\x7f"
                                    "ELF\x02\x01\x01"s +
                                        std::string(200, '\0')}});
  ASSERT_EQ(report.files.size(), 8U);
  EXPECT_THAT(report.files[0].note, HasSubstr("a damaged pickle: byte 17: cut off"));
  EXPECT_THAT(report.files[1].note, HasSubstr("'os.system'"));
  EXPECT_EQ(report.files[2].note, "empty");
  EXPECT_THAT(report.files[3].note, HasSubstr("neither a flight-recorder dump nor a memory snapshot"));
  EXPECT_THAT(report.files[4].note, HasSubstr("cut off in the middle of the JSON"));
  EXPECT_THAT(report.files[5].note, HasSubstr("NUL bytes"));
  EXPECT_FALSE(report.files[6].note.empty());
  EXPECT_THAT(report.files[7].note, HasSubstr("a program or core file"));
  EXPECT_TRUE(report.findings.empty()) << text_of(report);
}

TEST(JobFiles, AMissingFileAndAFolderWithoutFiles) {
  const test::TempDir folder;
  const Report report = diagnose({{folder / "none", folder.path()}, "", {}});
  ASSERT_EQ(report.files.size(), 2U);
  EXPECT_THAT(report.files[0].note, HasSubstr("No such file"));
  EXPECT_EQ(report.files[1].note, "a folder without files");
}

TEST(JobFiles, ChromeTracesAreTold) {
  const Report report = diagnosed(
      {{"whole.json",
        R"({"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}, {"ph": "X", "ts": 2, "args": {"x": {}}}]})"},
       {"cut.json", R"([{"ph": "X", "name": "a", "ts": 1, "dur": 2}, {"ph": "X", "name": "aten::mu)"},
       {"bad.json", R"([{"ph": "X", "name": "a"b", "ts": 1}])"}});
  EXPECT_THAT(report.files[0].note, testing::AllOf(HasSubstr("trireme trace report"), HasSubstr("2 events")));
  EXPECT_THAT(report.files[1].note, testing::AllOf(HasSubstr("cut off"), HasSubstr("1 whole event")));
  EXPECT_THAT(report.files[2].note, HasSubstr("no JSON"));
}

TEST(JobFiles, CollectedTraces) {
  TRIREME_NEEDS_SAMPLES(samples);
  const Report report = diagnose({{samples + "/traces"}, "", {}});
  std::map<std::string, std::string> notes;
  for (const FileNote& file : report.files) notes[file.file.substr(file.file.rfind('/') + 1, 3)] = file.note;
  EXPECT_THAT(notes["c04"], HasSubstr("no JSON"));
  EXPECT_THAT(notes["c05"], HasSubstr("4 events"));
  EXPECT_THAT(notes["c06"], testing::AllOf(HasSubstr("cut off"), HasSubstr("1 whole event")));
  EXPECT_THAT(notes["c07"], HasSubstr("no JSON"));
}

TEST(JobFiles, CollectedNcclLogs) {  // X07 (what networks say is tested beside nccl_network.cpp), H15, n12 of H03
  TRIREME_NEEDS_SAMPLES(samples);
  const auto of = [&](const char* name, std::optional<int> world = {}) {
    for (const auto& entry : std::filesystem::directory_iterator(samples + "/nccl")) {
      if (entry.path().filename().string().starts_with(name)) return diagnose({{entry.path().string()}, "", world});
    }
    return Report{};
  };
  const Report good = of("n01");
  EXPECT_FALSE(good.has_errors()) << text_of(good);
  expect_first(of("n06"), "nccl.duplicate_gpu", {0, 1, 2, 4}, {"1000"});
  expect_first(of("n07"), "nccl.ib_unreachable", {}, {"error 12", "retry count exceeded"});
  EXPECT_TRUE(find(of("n03"), "nccl.no_verbs_device") != nullptr);
  EXPECT_TRUE(find(of("n02"), "nccl.one_rank") != nullptr);
  const Report alone = of("n12");
  expect_first(alone, "calls.timeout", {},
               {"ranks 0, 1, 2 wait in all_reduce of 9801523 elements, call 808", "the culprit is not among them"});
  const Report told = of("n12", 4);
  expect_first(told, "calls.timeout", {3}, {"call 808", "rank 3 is not among them: suspect"});
  EXPECT_EQ(told.findings.size(), 1U) << text_of(told);
}

TEST(JobFiles, OurOwnTraceShowsWhoIsMissing) {
  // Oracle: by construction, written by the very writer that ranks use. Rank 2 has made 4 calls, the others wait in the 5th.
  const test::TempDir folder;
  for (int rank = 0; rank < 3; ++rank) {
    const auto trace =
        profile::open_collective_trace({.path = folder / str("trace/rank", rank, ".trace"), .rank = rank});
    const uint16_t group = trace->register_group("world", {0, 1, 2});
    for (uint64_t call = 1; call <= (rank == 2 ? 4U : 5U); ++call) {
      profile::TraceRecord record;
      record.call = call;
      record.group = group;
      record.op = 1;     // all_reduce
      record.dtype = 2;  // f32
      record.num_dims = 1;
      record.dims[0] = 64;
      record.step = 7;
      const uint64_t token = trace->queued(record);
      trace->started(token);
      if (call < 5) trace->finished(token, true);
    }
  }
  const Report report = diagnose({{folder.path()}, "", {}});
  expect_first(report, "calls.not_entered", {2},
               {"rank 2 has not entered all_reduce sum f32[64] (call 5 of group 'world', step 7)", "ranks 0, 1 wait"});
}

TEST(JobFiles, OurOwnTracesShowWhoWasSlow) {
  // Oracle: closed form. Rank 1 comes 30 ms after rank 0 to each call, having waited for data for 25 of them.
  constexpr uint64_t kMs = 1'000'000;
  Story story;
  for (int rank = 0; rank < 2; ++rank) {
    OwnTrace one{str("rank", rank, ".trace"), {}};
    one.trace.rank = rank;
    one.trace.host = "n1";
    one.trace.groups = {"world"};
    one.trace.group_ranks = {{0, 1}};
    for (uint64_t call = 1; call <= 30; ++call) {
      profile::TraceRecord record;
      record.serial = record.call = call;
      record.step = static_cast<uint32_t>(call);
      record.op = 1;
      record.state = static_cast<uint32_t>(profile::CallState::kFinished);
      record.queued_ns = record.started_ns = call * 100 * kMs + (rank == 1 ? 40 : 10) * kMs;
      record.finished_ns = call * 100 * kMs + 50 * kMs;
      if (rank == 1) one.trace.data_waits.push_back({call * 100 * kMs, call * 100 * kMs + 25 * kMs});
      one.trace.records.push_back(record);
    }
    story.own_traces.push_back(one);
  }
  const std::vector<Finding> findings = slow_ranks_of(story);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].code, "rank.slow");
  EXPECT_EQ(findings[0].ranks, std::vector<int>{1});
  EXPECT_EQ(findings[0].cause,
            "rank 1 (n1) was slow: it came 30 ms later than the others in each of 20 steps (30 % of a step; steps 2 to "
            "21), 25 ms of it in data loading; it stayed so");
  ASSERT_EQ(findings[0].evidence.size(), 1U);
  EXPECT_EQ(findings[0].evidence[0].file, "rank1.trace");
  // Without its lateness there is nothing to say.
  for (profile::TraceRecord& record : story.own_traces[1].trace.records) record.started_ns -= 30 * kMs;
  EXPECT_TRUE(slow_ranks_of(story).empty());
}

TEST(JobFiles, MemorySnapshotSaysWhoHoldsTheMemory) {
  const std::string snapshot = R"({"segments": [{"device": 0, "total_size": 1000, "blocks": [
      {"size": 600, "state": "active_allocated", "frames": [{"filename": "/x/torch/nn/f.py", "line": 1, "name": "linear"}, {"filename": "train.py", "line": 9, "name": "step"}]},
      {"size": 400, "state": "inactive"}]}],
    "device_traces": [[{"action": "alloc", "size": 600}, {"action": "oom", "size": 300, "device_free": 50, "frames": []}]]})";
  const Report report = diagnosed({{"snapshot.json", snapshot}});
  expect_first(report, "memory.fragmented", {},
               {"device 0 ran out of memory: 300 bytes were asked for, 50 bytes were free"});
  EXPECT_THAT(report.findings[0].advice, HasSubstr("600 bytes in 1 blocks from train.py:9 in step"));
  EXPECT_NE(find(report, "memory.snapshot"), nullptr);
}

// Ours are of CPU tensors, from C++ programs: templates of libraries in the user's program are nobody's line, and frames have no line number.
TEST(JobFiles, OfCpuSnapshotsTheUsersOwnFrameIsNamed) {
  const std::string snapshot = R"x({"segments": [{"device": 0, "total_size": 1000, "blocks": [
    {"size": 1000, "state": "active_allocated", "frames": [
      {"name": "at::empty()", "filename": "/t/torch/lib/libtorch_cpu.so+0x10", "line": 0},
      {"name": "void torch::nn::f<at::Tensor, g(int)>(at::Tensor&&)", "filename": "/home/u/prog+0x20", "line": 0},
      {"name": "at::Tensor Net::forward<int>(at::Tensor)", "filename": "/home/u/prog+0x30", "line": 0}]}]}],
    "device_traces": [[{"action": "oom", "size": 5000, "device_free": 3000, "frames": []}]],
    "trireme": {"device": "cpu", "recorded_events": 12, "dropped_events": 11}})x";
  const Report report = diagnosed({{"snapshot.json", snapshot}});
  const Finding* held = find(report, "memory.snapshot");
  ASSERT_NE(held, nullptr);
  EXPECT_THAT(held->cause, StartsWith("CPU tensors: "));
  EXPECT_THAT(held->advice,
              HasSubstr("in 1 blocks from /home/u/prog+0x30 in at::Tensor Net::forward<int>(at::Tensor)"));
  EXPECT_THAT(held->advice, HasSubstr("The 11 oldest events were dropped."));
  const Finding* oom = find(report, "memory.snapshot_oom");
  ASSERT_NE(oom, nullptr);
  EXPECT_THAT(oom->cause, StartsWith("the host ran out of memory: "));
  EXPECT_THAT(oom->cause, Not(HasSubstr("on the card")));
}

TEST(FlightRecorder, RanksOfNamesAndKindsOfOperations) {
  EXPECT_EQ(rank_of_file_name("dumps/nccl_trace_rank_3"), 3);
  EXPECT_EQ(rank_of_file_name("rank12.json"), 12);
  EXPECT_EQ(rank_of_file_name("comm_lib_trace_rank_0.pkl"), 0);
  EXPECT_FALSE(rank_of_file_name("a7/dump"));
  EXPECT_EQ(kind_of_op("_all_gather_base"), "all_gather");
  EXPECT_EQ(kind_of_op("REDUCE_SCATTER_coalesced"), "reduce_scatter");
  EXPECT_EQ(kind_of_op("all_reduce_barrier"), "barrier");
  EXPECT_EQ(kind_of_op("ALLREDUCE"), "all_reduce");
  EXPECT_EQ(kind_of_op("strange"), "strange");
}

}  // namespace
}  // namespace trireme::diagnose
