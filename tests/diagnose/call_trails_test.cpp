// Oracle: by construction. Each set of dumps has one fault, planted by hand; the right rank and words are those of the plant. Healthy sets must
// give nothing.
#include "diagnose/job/compare_trails.h"
#include "diagnose/job_fixture.h"

namespace trireme::diagnose {
namespace {

/// Steps of all_reduce [4], all_gather, all_reduce [8]: a training loop in small.
std::vector<RecordedCall> healthy(int64_t calls) {
  std::vector<RecordedCall> out;
  for (int64_t number = 1; number <= calls; ++number) {
    if (number % 3 == 2) {
      out.push_back({number, "_all_gather_base", "[[4]]", "[[16]]"});
    } else {
      out.push_back({number, "all_reduce", number % 3 == 1 ? "[[4]]" : "[[8]]", number % 3 == 1 ? "[[4]]" : "[[8]]"});
    }
  }
  return out;
}

Files dumps(const std::vector<std::vector<RecordedCall>>& ranks, int size = 0) {
  Files files;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    files.emplace_back(str("nccl_trace_rank_", rank),
                       dump(size > 0 ? size : static_cast<int>(ranks.size()), ranks[rank]));
  }
  return files;
}

std::vector<std::vector<RecordedCall>> all_waiting(int ranks, int64_t calls) {
  std::vector<std::vector<RecordedCall>> out(static_cast<size_t>(ranks), healthy(calls));
  for (auto& rank : out) rank.back().state = "started";
  return out;
}

TEST(CallTrails, HealthyDumpsGiveNothing) {
  for (const int ranks : {1, 2, 3, 4}) {
    const Report report =
        diagnosed(dumps(std::vector<std::vector<RecordedCall>>(static_cast<size_t>(ranks), healthy(30))));
    EXPECT_TRUE(report.findings.empty()) << text_of(report);
  }
}

TEST(CallTrails, WhoHasNotEntered) {  // H03: rank 3 sleeps before its 8th call
  for (int culprit = 0; culprit < 4; ++culprit) {
    auto ranks = all_waiting(4, 8);
    ranks[static_cast<size_t>(culprit)] = healthy(7);
    ranks[static_cast<size_t>(culprit)].back().more =
        R"(,"frames":[{"name":"wrapper","filename":"/x/torch/distributed/c10d_logger.py","line":79},)"
        R"({"name":"step","filename":"train.py","line":41}])";
    const Report report = diagnosed(dumps(ranks));
    expect_first(report, "calls.not_entered", {culprit},
                 {str("rank ", culprit, " has not entered _all_gather_base"), "call 8 of group 'default_pg'"});
    EXPECT_THAT(report.findings[0].advice, testing::HasSubstr("train.py:41 in step"));
    EXPECT_EQ(report.findings.size(), 1U) << text_of(report);
  }
}

TEST(CallTrails, OneRankAheadByOne) {  // H17
  std::vector<RecordedCall> behind{{288'684, "all_reduce"}, {288'685, "_all_gather_base", "[[4]]", "[[8]]"}};
  std::vector<RecordedCall> ahead = behind;
  ahead.push_back({288'686, "_all_gather_base", "[[4]]", "[[8]]", "Float", "scheduled"});
  expect_first(diagnosed(dumps({behind, ahead})), "calls.not_entered", {0},
               {"rank 0 has not entered _all_gather_base", "call 288686"});
  // Only counters: what TORCH_INCLUDE_ONLY_ACTIVE leaves of rank 0.
  Files files{
      {"fr_0",
       dump(
           2, {},
           R"("last_enqueued_collective":288685,"last_started_collective":288685,"last_completed_collective":288685)")},
      {"fr_1", dump(2, {ahead.back()})}};
  const Report counters = diagnosed(files);
  expect_first(counters, "calls.not_entered", {0}, {"call 288686"});
  EXPECT_THAT(counters.findings[0].advice, testing::HasSubstr("Rank 0 has completed call 288685"));
  // Both have entered it: no desync, the transfer stalls.
  behind.push_back(ahead.back());
  const Report stalled = diagnosed(dumps({behind, ahead}));
  expect_first(stalled, "calls.stalled", {}, {"all ranks have entered", "call 288686"});
  // On one of them it has not begun to run.
  ahead.back().state = "started";
  expect_first(diagnosed(dumps({behind, ahead})), "calls.not_started", {0}, {"on rank 0 it has not started"});
}

TEST(CallTrails, NoDumpIsSuspect) {  // H05: rank 1 threw and left no dump
  Files files = dumps({healthy(5), {}, healthy(5)}, 3);
  files.erase(files.begin() + 1);
  for (auto& [name, text] : files) text = text.replace(text.rfind("completed"), 9, "started");
  expect_first(diagnosed(files), "calls.no_dump", {1}, {"no dump from rank 1: suspect", "call 5"});
}

struct Plant {
  const char* name;
  const char* code;
  const char* words;
  void (*make)(std::vector<RecordedCall>& odd);
};
struct Where {
  int size;
  int culprit;
};
class DesyncTest : public testing::TestWithParam<std::tuple<Plant, Where>> {};

TEST_P(DesyncTest, TheOddRankIsNamed) {
  const auto& [plant, where] = GetParam();
  const auto [size, culprit] = where;
  auto ranks = all_waiting(size, 15);
  auto& odd = ranks[static_cast<size_t>(culprit)];
  plant.make(odd);
  odd.back().state = "started";
  expect_first(diagnosed(dumps(ranks)), plant.code, {culprit}, {str("rank ", culprit), plant.words});
}

INSTANTIATE_TEST_SUITE_P(
    Plants, DesyncTest,
    testing::Combine(
        testing::Values(Plant{"LeftOut", "calls.missing", "left out _all_gather_base",
                              [](auto& odd) {
                                odd.erase(odd.begin() + 10);  // call 11, an all_gather
                                for (size_t i = 10; i < odd.size(); ++i) --odd[i].number;
                              }},
                        Plant{"Extra", "calls.extra", "made a call that the others did not make: broadcast",
                              [](auto& odd) {
                                odd.insert(odd.begin() + 10, RecordedCall{11, "broadcast", "[[99]]", "[[99]]"});
                                for (size_t i = 11; i < odd.size(); ++i) ++odd[i].number;
                              }},
                        Plant{"Order", "calls.order", "in the other order",
                              [](auto& odd) {
                                std::swap(odd[10], odd[11]);
                                std::swap(odd[10].number, odd[11].number);
                              }},
                        Plant{"Shape", "calls.shape", "the shapes differ",
                              [](auto& odd) { odd[9].input = odd[9].output = "[[5]]"; }},
                        Plant{"Transposed", "calls.shape", "[3, 2]",
                              [](auto& odd) { odd[9].input = odd[9].output = "[[3, 2]]"; }},
                        Plant{"Dtype", "calls.dtype", "the dtypes differ", [](auto& odd) { odd[9].dtype = "Double"; }},
                        Plant{"Root", "calls.root", "the roots differ", [](auto& odd) { odd[9].more = ",\"root\":1"; }},
                        Plant{"Operation", "calls.operation", "the operations differ",
                              [](auto& odd) {
                                // Known from earlier, so it is the wrong one here, not an extra one.
                                odd[9].op = "_all_gather_base";
                                odd[9].input = "[[4]]";
                                odd[9].output = "[[16]]";
                                odd[10].op = "all_reduce";
                                odd[10].input = odd[10].output = "[[77]]";
                              }}),
        testing::Values(Where{2, 0}, Where{2, 1}, Where{3, 0}, Where{3, 1}, Where{3, 2}, Where{4, 0}, Where{4, 1},
                        Where{4, 3})),
    [](const auto& info) {
      return str(std::get<0>(info.param).name, "_", std::get<1>(info.param).size, "ranks_culprit",
                 std::get<1>(info.param).culprit);
    });

TEST(CallTrails, UnlikeSizesThatWentThrough) {  // H01: nothing hung, the values were wrong
  auto ranks = std::vector<std::vector<RecordedCall>>(4, healthy(6));
  for (auto& rank : ranks) rank[3] = {4, "all_reduce", "[[409600]]", "[[409600]]"};
  ranks[2][3] = {4, "all_reduce", "[[409598]]", "[[409598]]"};
  expect_first(diagnosed(dumps(ranks)), "calls.shape", {2}, {"[409598]", "[409600]", "call 4"});
}

TEST(CallTrails, SplitsOfOnePair) {  // H07: totals equal, one pair wrong
  const auto call = [](const char* in, const char* out) {
    return std::vector<RecordedCall>{{1, "all_to_all", "[[6]]", "[[6]]", "Float", "started",
                                      str(R"(,"input_split_sizes":)", in, R"(,"output_split_sizes":)", out)}};
  };
  // Rank 0 sends 3 to rank 1, which expects 1; rank 2 sends 1 to rank 1, which expects 3.
  const Report report =
      diagnosed(dumps({call("[1,3,2]", "[1,2,3]"), call("[2,2,2]", "[1,2,3]"), call("[3,1,2]", "[2,2,2]")}));
  expect_first(report, "calls.splits", {0, 1, 2},
               {"rank 0 sends 3 to rank 1, rank 1 expects 1", "rank 2 sends 1 to rank 1, rank 1 expects 3"});
  // A legal uneven one.
  Files legal = dumps({call("[1,3,2]", "[1,2,3]"), call("[2,2,2]", "[3,2,1]"), call("[3,1,2]", "[2,2,2]")});
  for (auto& [name, text] : legal) text = text.replace(text.find("started"), 7, "completed");
  const Report fine = diagnosed(legal);
  EXPECT_TRUE(fine.findings.empty()) << text_of(fine);
}

TEST(CallTrails, SplitsFromListsAndTotals) {
  const auto list = [](const char* in, const char* out) {
    return std::vector<RecordedCall>{{1, "all_to_all", in, out, "Float", "started"}};
  };
  expect_first(diagnosed(dumps({list("[[1],[3]]", "[[1],[2]]"), list("[[2],[2]]", "[[1],[2]]")})), "calls.splits",
               {0, 1}, {"rank 0 sends 3 to rank 1, rank 1 expects 1"});
  // Before format 2.11 only the sums of a single tensor are there: legal as long as they agree.
  const Report sums = diagnosed(dumps({list("[[8]]", "[[4]]"), list("[[8]]", "[[11]]")}));
  expect_first(sums, "calls.splits", {}, {"send 16 elements", "expect 15", "not recorded"});
}

TEST(CallTrails, BothSendFirst) {  // P02, as the dumps show it
  const Report report = diagnosed(dumps({{{1, "send 0->1", "[[64]]", "[[64]]", "Float", "started"}},
                                         {{1, "send 1->0", "[[64]]", "[[64]]", "Float", "started"}}}));
  expect_first(report, "calls.deadlock", {0, 1},
               {"rank 0 waits in send Float[64] to 1", "rank 1 waits in send Float[64] to 0"});
  EXPECT_THAT(report.findings[0].advice, testing::HasSubstr("Both sides send first"));
}

TEST(CallTrails, ASendThatWasNotMade) {
  const Report report = diagnosed(
      dumps({{{1, "send 0->1"}}, {{1, "recv 1<-0"}, {2, "recv 1<-0", "[[4]]", "[[4]]", "Float", "started"}}}));
  expect_first(report, "calls.not_entered", {0}, {"rank 0 has not made the other side of recv"});
}

TEST(CallTrails, ASendToARankWithoutADump) {
  Files files = dumps({{{1, "send 0->1", "[[64]]", "[[64]]", "Float", "started"}}}, 2);
  expect_first(diagnosed(files), "calls.no_dump", {1}, {"no dump from rank 1: suspect", "send Float[64] to 1"});
}

TEST(CallTrails, OldFormatsAreRead) {
  // 1.x: seq_id, a bare list, no members. 2.3 has no pg_config for some groups.
  const auto old = [](int calls, const char* last) {
    std::string out = "[";
    for (int i = 1; i <= calls; ++i) {
      out += str(i == 1 ? "" : ",", R"({"seq_id":)", i,
                 R"(,"pg_id":0,"profiling_name":"nccl:all_reduce","input_sizes":[[4]],"output_sizes":[[4]],"state":")",
                 i == calls ? last : "completed", R"(","time_created_ns":)", i, "}");
    }
    return out + "]";
  };
  const Report report = diagnosed({{"rank_0", old(6, "started")}, {"rank_1", old(5, "completed")}});
  expect_first(report, "calls.not_entered", {1}, {"call 6"});
}

TEST(CallTrails, NumbersOfADamagedFileMayBeFarApart) {
  // Nothing is counted through from one to the other, and no sum overflows.
  std::vector<RecordedCall> wide{{1, "all_reduce"}, {INT64_MAX, "all_reduce"}};
  std::vector<RecordedCall> other{{1, "all_reduce"}, {INT64_MAX, "broadcast"}};
  other[0].number = -5;
  const Report report = diagnosed(dumps({wide, other}));
  EXPECT_LE(report.findings.size(), 2U) << text_of(report);
}

TEST(CallTrails, ADumpWithoutARankInItsNameSaysSo) {
  const Report report = diagnosed({{"dump.json", dump(2, healthy(3))}});
  ASSERT_EQ(report.files.size(), 1U);
  EXPECT_THAT(report.files[0].note, testing::HasSubstr("does not end with its rank"));
}

// A list of members that names one rank 300,000 times: looking for its calls anew each time took hours.
TEST(CallTrails, ARankThatIsNamedAgainAndAgainCountsOnce) {
  std::string ranks = "0";
  for (int i = 0; i < 300'000; ++i) ranks += ", 1";
  std::string text = dump(2, healthy(3));
  const size_t at = text.find("[0, 1]");
  ASSERT_NE(at, std::string::npos) << text.substr(0, 300);
  text.replace(at + 1, 4, ranks);
  const Report report = diagnosed({{"nccl_trace_rank_0", text}, {"nccl_trace_rank_1", text}});
  EXPECT_FALSE(report.has_errors()) << text_of(report).substr(0, 1000);
}

// Half of many ranks wait for the other half; what was cubic in their number took minutes.
TEST(CallTrails, ThousandsOfRanksThatWaitAreComparedInASecond) {
  constexpr int kRanks = 3000;
  TrailBook book;
  Signature reduce;
  reduce.op = reduce.kind = "all_reduce";
  reduce.inputs = {{4}};
  Signature send = reduce;
  send.op = send.kind = "send";
  const uint32_t collective = book.intern(reduce);
  GroupInfo world{"world", {}};
  for (int rank = 0; rank < kRanks; ++rank) world.ranks.push_back(rank);
  book.groups["world|"] = world;
  for (int rank = 0; rank < kRanks; ++rank) {
    Trail trail;
    trail.rank = rank;
    GroupTrail& group = trail.groups["world|"];
    for (int64_t number = 1; number <= (rank % 2 == 0 ? 2 : 1); ++number) {
      Call call;
      call.number = number;
      call.signature = collective;
      call.phase = number == 2 ? CallPhase::kStarted : CallPhase::kFinished;
      group.calls.push_back(call);
    }
    // A ring of messages, all of them taken.
    send.root = (rank + 1) % kRanks;
    Signature recv = send;
    recv.op = recv.kind = "recv";
    recv.root = (rank + kRanks - 1) % kRanks;
    for (const uint32_t message : {book.intern(send), book.intern(recv)}) {
      Call call;
      call.number = 1;
      call.signature = message;
      call.phase = CallPhase::kStarted;
      group.point_to_point.push_back(call);
    }
    book.add(std::move(trail));
  }
  const std::vector<Finding> found = compare_trails(book, {});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "calls.not_entered");
  EXPECT_EQ(found[0].ranks.size(), size_t{kRanks / 2});
  EXPECT_EQ(found[0].ranks[0], 1);
}

}  // namespace
}  // namespace trireme::diagnose
