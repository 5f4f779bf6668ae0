// Oracle: closed form, and the answers of public reports' files (samples/traces, expected.tsv) where they are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trace/read_timeline.h"
#include "trireme/base/error.h"

namespace trireme::trace {
namespace {

using testing::Contains;
using testing::HasSubstr;

Timeline of(const std::string& text, const std::string& name = "rank2.json") {
  return read_timeline(bytes_of(text), name);
}

// Our own inputs with the faults of c04 to c07.
TEST(Samples, OwnInputs) {
  const Timeline quotes =
      of(R"({"traceEvents": [{"ph": "X", "name": "{"a": "b"}: x", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]})");
  EXPECT_FALSE(quotes.valid_json);
  EXPECT_EQ(quotes.num_events, 0U);
  EXPECT_THAT(quotes.notices, Contains(HasSubstr("not JSON at byte 17")));

  const Timeline pairs = of(
      R"([{"name": "one", "ph": "B", "pid": 2, "tid": 4, "ts": 10}, {"name": "in", "ph": "B", "pid": 2, "tid": 4, "ts": 12},
      {"ph": "E", "pid": 2, "tid": 4, "ts": 15}, {"ph": "E", "pid": 2, "tid": 4, "ts": 20}, {"name": "two", "ph": "B", "pid": 2, "tid": 4, "ts": 30}, {"ph": "E", "pid": 2, "tid": 4, "ts": 37}])");
  ASSERT_EQ(pairs.spans.size(), 3U);
  EXPECT_EQ(pairs.spans[0].end_ns - pairs.spans[0].start_ns, 3000);
  EXPECT_EQ(pairs.spans[1].end_ns - pairs.spans[1].start_ns, 10'000);
  EXPECT_EQ(pairs.spans[2].end_ns - pairs.spans[2].start_ns, 7000);

  const Timeline cut =
      of(R"({"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}, {"ph": "X", "na)");
  EXPECT_EQ(cut.num_events, 1U);
  EXPECT_TRUE(cut.lower_limit);
  EXPECT_THAT(cut.notices, Contains(HasSubstr("1 whole event read, counts are a lower limit")));

  const Timeline comma = of(R"([,{"name": "a", "ph": "B", "ts": 36.5, "pid": 1, "tid": 1}])");
  EXPECT_FALSE(comma.valid_json);
  EXPECT_THAT(comma.notices, Contains(HasSubstr("not JSON at byte 1")));
  EXPECT_EQ(comma.num_open, 1U);
}

TEST(Samples, PublicReports) {
  const std::filesystem::path folder = std::filesystem::path(TRIREME_SOURCE_DIR) / "../shared/cases/samples/traces";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "no " << folder << ": the samples of public reports are not here";
  std::ifstream expected(folder / "expected.tsv");
  std::string line;
  std::getline(expected, line);
  int checked = 0;
  while (std::getline(expected, line)) {
    const std::string name = line.substr(0, line.find('\t'));
    std::string file;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with(name)) file = entry.path();
    }
    ASSERT_FALSE(file.empty()) << name;
    const Timeline timeline = read_timeline(open_bytes(file), file);
    if (name == "c04" || name == "c07") {
      EXPECT_FALSE(timeline.valid_json) << name;
      EXPECT_THAT(timeline.notices, Contains(HasSubstr("not JSON"))) << name;
    } else if (name == "c05") {
      ASSERT_EQ(timeline.spans.size(), 2U);
      EXPECT_EQ(timeline.names[timeline.spans[1].name], "Event6");
      EXPECT_EQ(timeline.spans[1].end_ns - timeline.spans[1].start_ns, 64'000);
    } else if (name == "c06") {
      EXPECT_EQ(timeline.num_events, 1U);
      EXPECT_TRUE(timeline.lower_limit);
      EXPECT_THAT(timeline.notices, Contains(HasSubstr("cut off")));
    } else {
      ADD_FAILURE() << name << " is a sample that no test knows";
    }
    ++checked;
  }
  EXPECT_GE(checked, 4);
}

// An excerpt of what torch.profiler 2.13 wrote of DDP over Gloo. Oracle: the file, counted with Python.
TEST(Timeline, PyTorchOnCpus) {
  const Timeline timeline = load_timeline(std::string(TRIREME_SOURCE_DIR) + "/tests/fuzz/seeds/trace/cpu.json");
  EXPECT_TRUE(timeline.valid_json);
  EXPECT_EQ(timeline.rank, 0);
  EXPECT_EQ(timeline.world_size, 2);
  EXPECT_EQ(timeline.backend, "gloo");
  EXPECT_EQ(timeline.host, "vm");
  EXPECT_EQ(timeline.num_events, 24U);
  EXPECT_FALSE(timeline.on_device);
  ASSERT_EQ(timeline.calls.size(), 2U);
  EXPECT_EQ(timeline.calls[0].op, CollectiveOp::kAllReduce);
  EXPECT_EQ(timeline.calls[0].bytes_in, 136'714 * 4);
  EXPECT_EQ(timeline.calls[0].start_ns, 1'790'857'026'000'000'000 + 5'199'432'184'865'331);
  EXPECT_EQ(timeline.calls[0].end_ns - timeline.calls[0].start_ns, 49'370'378);
  ASSERT_FALSE(timeline.steps.empty());
  EXPECT_EQ(timeline.steps[0].number, 2);
}

// R01: a duration below zero counts as 0, and is said.
TEST(Timeline, NegativeDurations) {
  const Timeline timeline =
      of(R"([{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 10, "dur": -4}])");
  EXPECT_EQ(timeline.num_negative, 1U);
  EXPECT_EQ(timeline.spans[0].end_ns, timeline.spans[0].start_ns);
  EXPECT_THAT(timeline.notices, Contains(HasSubstr("below zero")));
}

// Older profilers: the kernel has no arguments of its own but the external id of record_param_comms.
TEST(Timeline, KernelsAreJoinedWithTheirDescription) {
  const Timeline timeline = of(
      R"({"distributedInfo": {"rank": 5, "world_size": 8, "backend": "nccl"}, "baseTimeNanoseconds": 1000000, "traceEvents": [
    {"ph": "X", "cat": "kernel", "name": "ncclKernel_AllGather_RING_LL_Sum_int8_t", "pid": 0, "tid": 20, "ts": 100, "dur": 5, "args": {"External id": 44}},
    {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1, "ts": 50, "dur": 1, "args": {"External id": 44, "Collective name": "_allgather_base",
      "In msg nelems": 10, "Out msg nelems": 80, "dtype": "BFloat16", "Group size": 8, "Process Group Name": "2", "Process Group Description": "tp",
      "Process Group Ranks": "[0, 2, ...]", "Seq": 9}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 51, "dur": 1, "args": {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}}]})");
  EXPECT_EQ(timeline.rank, 5);
  EXPECT_EQ(timeline.world_size, 8);
  ASSERT_EQ(timeline.calls.size(), 1U);
  const Call& call = timeline.calls[0];
  EXPECT_EQ(call.start_ns, 1'100'000);
  EXPECT_EQ(call.op, CollectiveOp::kAllGather);
  EXPECT_EQ(call.bytes_in, 20);
  EXPECT_EQ(call.bytes_out, 160);
  EXPECT_EQ(call.sequence, 9);
  EXPECT_EQ(timeline.groups[call.group].name, "tp");
  EXPECT_EQ(timeline.groups[call.group].ranks, (std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_TRUE(timeline.on_device);
  EXPECT_EQ(timeline.spans.size(), 1U);  // the CPU's operators tell nothing about the GPU's time
  ASSERT_EQ(timeline.operators.size(), 1U);
  EXPECT_EQ(timeline.operators[0].flops, 48);
}

TEST(Timeline, RanksFromNamesAndOrder) {
  std::vector<Timeline> named(2);
  named[0].source = "x/worker_7.pt.trace.json";
  named[1].source = "x/trace-rank-03.json.gz";
  settle_ranks(named);
  EXPECT_EQ(named[0].rank, 3);
  EXPECT_EQ(named[1].rank, 7);
  std::vector<Timeline> unnamed(2);
  unnamed[0].source = "b.json";
  unnamed[1].source = "a.json";
  settle_ranks(unnamed);
  EXPECT_EQ(unnamed[0].source, "b.json");
  EXPECT_THAT(unnamed[1].notices, Contains(HasSubstr("taken as 1")));
  std::vector<Timeline> twice(2);
  twice[0].source = "rank1.json";
  twice[1].source = "old/rank1.json";
  try {
    settle_ranks(twice);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("both of rank 1"));
  }
}

}  // namespace
}  // namespace trireme::trace
