// Oracle: closed form; each record holds functions of one number (trace_oracle.h), and what is read must be what was
// written.
#include "profile/collective_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "profile/trace_file.h"
#include "profile/trace_oracle.h"
#include "support/temp_dir.h"
#include "trireme/profile/data_wait.h"

namespace trireme::profile {
namespace {

using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto code(CallState state) { return static_cast<uint32_t>(state); }

void run_call(CollectiveTrace& trace, uint64_t number) {
  const uint64_t token = trace.queued(record_of(number));
  trace.started(token);
  trace.finished(token, true);
}

std::vector<uint64_t> calls_of(const TraceSnapshot& snapshot) {
  std::vector<uint64_t> calls;
  for (const TraceRecord& record : snapshot.records) calls.push_back(record.call);
  return calls;
}

TEST(CollectiveTrace, FileHoldsWhatWasWrittenWhileTheWriterRuns) {
  const TempDir dir;
  const std::string path = dir / "new/folder/trace0";
  const auto trace = open_collective_trace({.path = path, .rank = 3, .capacity = 16});
  EXPECT_EQ(trace->path(), path);
  EXPECT_EQ(trace->register_group("world", {0, 1, 2, 3, 4, 5, 6, 7}), 0);
  EXPECT_EQ(trace->register_group("dp", {3, 1, 1, 7, 9, 11}), 1);

  TraceRecord second = record_of(2);
  second.group = 1;
  const uint64_t a = trace->queued(record_of(1));
  const uint64_t b = trace->queued(second);
  const uint64_t c = trace->queued(record_of(3));
  const uint64_t d = trace->queued(record_of(4));
  trace->started(b);
  trace->started(c);
  trace->finished(c, true);
  trace->finished(d, false);  // failed before it started

  const TraceSnapshot from_file = read_collective_trace(path).value();
  for (const TraceSnapshot& got : {from_file, trace->snapshot()}) {
    EXPECT_EQ(got.rank, 3);
    EXPECT_EQ(got.pid, getpid());
    EXPECT_EQ(got.host.substr(0, 63), host_name().substr(0, 63));
    EXPECT_FALSE(got.closed);
    EXPECT_EQ(got.torn, 0U);
    EXPECT_THAT(got.groups, ElementsAre("world", "dp"));
    EXPECT_THAT(got.group_ranks, ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7), ElementsAre(3, 1, 1, 7, 9, 11)));
    ASSERT_THAT(calls_of(got), ElementsAre(1, 2, 3, 4));
    for (const TraceRecord& record : got.records) EXPECT_TRUE(is_whole(record));
    EXPECT_EQ(got.records[0].serial, a);
    EXPECT_EQ(got.records[1].group, 1);
    EXPECT_EQ(got.records[0].state, code(CallState::kQueued));
    EXPECT_EQ(got.records[1].state, code(CallState::kStarted));
    EXPECT_EQ(got.records[2].state, code(CallState::kFinished));
    EXPECT_EQ(got.records[3].state, code(CallState::kFailed));
    EXPECT_EQ(got.records[0].started_ns, 0U);
    EXPECT_GT(got.records[1].started_ns, 0U);
    EXPECT_EQ(got.records[1].finished_ns, 0U);
    EXPECT_GE(got.records[2].finished_ns, got.records[2].started_ns);
    EXPECT_EQ(got.records[3].started_ns, 0U);
  }
}

TEST(CollectiveTrace, ConvertsItsTimesToWallClock) {
  const auto wall_s = [] {
    timespec wall{};
    clock_gettime(CLOCK_REALTIME, &wall);
    return static_cast<double>(wall.tv_sec) + static_cast<double>(wall.tv_nsec) / 1e9;
  };
  const auto trace = open_collective_trace({});
  TraceRecord now;
  const double before = wall_s();
  (void)trace->queued(now);
  const double after = wall_s();
  const TraceSnapshot got = trace->snapshot();
  const int64_t recorded = static_cast<int64_t>(got.records.at(0).queued_ns) + got.wall_minus_monotonic_ns;
  EXPECT_GT(static_cast<double>(recorded) / 1e9, before - 1);
  EXPECT_LT(static_cast<double>(recorded) / 1e9, after + 1);
}

TEST(CollectiveTrace, KeepsTheNewestRecordsWhenTheRingIsFull) {
  const auto trace = open_collective_trace({.capacity = 4});
  for (uint64_t i = 1; i <= 11; ++i) run_call(*trace, i);
  EXPECT_THAT(calls_of(trace->snapshot()), ElementsAre(8, 9, 10, 11));
}

TEST(CollectiveTrace, NeverOverwritesACallThatHasNotFinished) {
  const auto trace = open_collective_trace({.capacity = 4});
  const uint64_t hung = trace->queued(record_of(1));
  trace->started(hung);
  for (uint64_t i = 2; i <= 50; ++i) run_call(*trace, i);
  EXPECT_THAT(calls_of(trace->snapshot()), ElementsAre(1, 48, 49, 50));

  std::vector<uint64_t> tokens;
  for (uint64_t i = 51; i <= 53; ++i) tokens.push_back(trace->queued(record_of(i)));
  EXPECT_EQ(trace->queued(record_of(54)), 0U);  // all four are taken
  trace->started(0);
  trace->finished(0, true);
  EXPECT_EQ(trace->snapshot().dropped, 1U);
  EXPECT_THAT(calls_of(trace->snapshot()), ElementsAre(1, 51, 52, 53));

  trace->finished(hung, true);
  run_call(*trace, 55);
  EXPECT_THAT(calls_of(trace->snapshot()), ElementsAre(51, 52, 53, 55));
  trace->finished(hung, false);  // its record is another call's by now
  EXPECT_EQ(trace->snapshot().records.back().state, code(CallState::kFinished));
}

TEST(CollectiveTrace, ReadersBesideFourWritersSeeOnlyWholeRecords) {
  const TempDir dir;
  // Small, so that records are overwritten all the time.
  const auto trace = open_collective_trace({.path = dir / "trace", .capacity = 64});
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (uint64_t w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (uint64_t i = 0; !stop; ++i) run_call(*trace, i * 4 + w);
    });
  }
  size_t seen = 0;
  uint64_t newest = 0;
  // Until the writers have really run beside it.
  for (int i = 0; i < 200 || newest < 10'000 || seen < 1000; ++i) {
    const TraceSnapshot got = i % 2 == 0 ? trace->snapshot() : read_collective_trace(trace->path()).value();
    for (const TraceRecord& record : got.records) ASSERT_TRUE(is_whole(record));
    seen += got.records.size();
    if (!got.records.empty()) newest = got.records.back().serial;
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  const TraceSnapshot last = trace->snapshot();
  EXPECT_EQ(last.records.size(), 64U);
  EXPECT_EQ(last.torn, 0U);
  EXPECT_EQ(last.dropped, 0U);
}

TEST(CollectiveTrace, FileIsPrivateAndTheOneBeforeIsKept) {
  const TempDir dir;
  const std::string path = dir / "trace";
  {
    const auto first = open_collective_trace({.path = path, .rank = 1, .capacity = 4});
    struct stat info{};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
  }
  EXPECT_TRUE(read_collective_trace(path).value().closed);
  const auto second = open_collective_trace({.path = path, .rank = 2, .capacity = 4});
  EXPECT_EQ(read_collective_trace(path).value().rank, 2);
  EXPECT_EQ(read_collective_trace(path + ".old").value().rank, 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 2);  // no temporary file is left
}

TEST(CollectiveTrace, DoesNotWriteThroughALinkPlantedUnderItsName) {
  const TempDir dir;
  std::ofstream(dir / "precious") << "data";
  std::filesystem::create_symlink(dir / "precious", dir / "trace");
  const auto trace = open_collective_trace({.path = dir / "trace", .capacity = 4});
  std::string content;
  std::ifstream(dir / "precious") >> content;
  EXPECT_EQ(content, "data");
  EXPECT_TRUE(read_collective_trace(dir / "trace").ok());
}

TEST(CollectiveTrace, PointerFileLeadsToTheTraceInMemory) {
  const TempDir dir;
  std::string target;
  {
    const auto trace =
        open_collective_trace({.path = dir / "trace", .rank = 5, .capacity = 4, .place = TracePlace::kMemory});
    target = trace->path();
    EXPECT_NE(target, dir / "trace");
    run_call(*trace, 9);
    const TraceSnapshot got = read_collective_trace(dir / "trace").value();
    EXPECT_EQ(got.rank, 5);
    EXPECT_THAT(calls_of(got), ElementsAre(9));
  }
  std::filesystem::remove(target);
  EXPECT_THAT(
      read_collective_trace(dir / "trace").reason(),
      AllOf(HasSubstr(dir / "trace"), HasSubstr(target), HasSubstr(host_name()), HasSubstr("cannot be opened")));
}

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

TEST(CollectiveTrace, HoldsTheLastWaitsForData) {
  const TempDir dir;
  const auto trace = open_collective_trace({.path = dir / "trace0", .capacity = 4});
  const auto later = open_collective_trace({.capacity = 4});
  EXPECT_TRUE(trace->snapshot().data_waits.empty());
  const uint64_t first = monotonic_ns();
  for (int i = 0; i < 200; ++i) const auto waiting = data_wait();
  const uint64_t before_last = monotonic_ns();
  {
    const auto waiting = data_wait();
    while (monotonic_ns() < before_last + 1'000'000) continue;
  }
  const uint64_t last = monotonic_ns();
  for (const TraceSnapshot& got :
       {read_collective_trace(dir / "trace0").value(), trace->snapshot(), later->snapshot()}) {
    ASSERT_EQ(got.data_waits.size(), 126U);
    uint64_t end = first;
    for (const DataWaitSpan& wait : got.data_waits) {
      EXPECT_LE(end, wait.start_ns);
      EXPECT_LE(wait.start_ns, wait.end_ns);
      end = wait.end_ns;
    }
    EXPECT_LE(end, last);
    EXPECT_GE(got.data_waits.back().start_ns, before_last);
    EXPECT_GE(got.data_waits.back().end_ns - got.data_waits.back().start_ns, 900'000U);
  }
  // A wait of which only one half is new is left out.
  std::fstream file(dir / "trace0", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(2048 + 16);
  file.put('x');
  file.close();
  EXPECT_EQ(read_collective_trace(dir / "trace0").value().data_waits.size(), 125U);
}

TEST(CollectiveTrace, RecordsNothingWhileItIsOff) {
  const auto trace = open_collective_trace({.capacity = 4});
  const uint64_t before = trace->queued(record_of(1));
  trace->set_recording(false);
  trace->finished(before, true);  // a call that it knows still ends
  run_call(*trace, 2);
  trace->set_recording(true);
  run_call(*trace, 3);
  const TraceSnapshot got = trace->snapshot();
  EXPECT_THAT(calls_of(got), ElementsAre(1, 3));
  EXPECT_EQ(got.records[0].state, code(CallState::kFinished));
  EXPECT_EQ(got.dropped, 0U);
}

TEST(CollectiveTrace, FullGroupTableIsSaidAndDoesNotHurt) {
  const auto trace = open_collective_trace({.capacity = 4});
  const std::string name(1000, 'x');
  uint16_t index = 0;
  size_t listed = 0;
  while ((index = trace->register_group(name, {0, 2})) != kUnlistedGroup) EXPECT_EQ(index, listed++);
  EXPECT_EQ(listed, 61'440 / (8 + 1000 + 12));
  TraceRecord record = record_of(1);
  record.group = kUnlistedGroup;
  (void)trace->queued(record);
  const TraceSnapshot got = trace->snapshot();
  EXPECT_EQ(got.groups.size(), listed);
  EXPECT_EQ(got.groups.back(), name);
  EXPECT_EQ(got.records.at(0).group, kUnlistedGroup);
}

TEST(CollectiveTrace, WrongUseSaysWhatIsRequired) {
  try {
    (void)open_collective_trace({.rank = 2, .capacity = 0});
    FAIL() << "no throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 2"), HasSubstr("capacity is 0"), HasSubstr("4194304")));
  }
  const TempDir dir;
  std::ofstream(dir / "file") << "x";
  try {
    (void)open_collective_trace({.path = dir / "file/trace"});
    FAIL() << "no throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(dir / "file"), HasSubstr("Not a directory")));
  }
  EXPECT_THAT(read_collective_trace(dir / "none").reason(), HasSubstr("No such file"));
  EXPECT_THAT(read_collective_trace(dir.path()).reason(), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace trireme::profile
