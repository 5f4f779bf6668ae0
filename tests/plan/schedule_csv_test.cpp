// Oracle: what is written reads back as the same list (batches numbered from 0); the notation's own examples; errors by their text. That
// torch reads and writes the same is in schedule_torch_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "plan/schedule_oracle.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

using ::testing::HasSubstr;

TEST(ScheduleCsv, ReadsTheNotation) {
  const ScheduleFile file =
      read_schedule_csv("0F0,,1F0, 0B0 ,0REDUCE_GRAD\r\n2RECV_F1,,(2F1;3B0)OVERLAP_F_B\r\n", "a.csv");
  ASSERT_EQ(file.schedule.size(), 2u);
  EXPECT_TRUE(file.has_communication);
  EXPECT_FALSE(file.splits_backward);
  const std::vector<Action> first = {{ActionKind::kForward, 0, 0},
                                     {ActionKind::kForward, 1, 0},
                                     {ActionKind::kBackwardInput, 0, 0},
                                     {ActionKind::kBackwardWeight, 0, 0},
                                     {ActionKind::kReduceGrads, 0, 0}};
  const std::vector<Action> second = {{ActionKind::kRecvActivation, 2, 1, 1, 1},
                                      {ActionKind::kForward, 2, 1, -1, -1, 0},
                                      {ActionKind::kBackwardInput, 3, 0, -1, -1, 0},
                                      {ActionKind::kBackwardWeight, 3, 0, -1, -1, 0}};
  EXPECT_EQ(file.schedule[0], first);
  EXPECT_EQ(file.schedule[1], second);
  EXPECT_EQ(write_schedule_csv(file.schedule, true), "0F0,1F0,0B0,0REDUCE_GRAD\r\n2RECV_F1,(2F1;3B0)OVERLAP_F_B\r\n");
}

TEST(ScheduleCsv, RoundTripOfSeededSchedules) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededSchedule seeded = seeded_schedule(seed);
    for (auto& list : seeded.schedule) {  // numbered as the reader does
      int next = -1, before = -1;
      for (Action& action : list) {
        if (action.batch >= 0 && action.batch != before) ++next;
        before = action.batch;
        if (action.batch >= 0) action.batch = next;
      }
    }
    EXPECT_EQ(read_schedule_csv(write_schedule_csv(seeded.schedule), "x").schedule, seeded.schedule)
        << "seed " << seed << ' ' << seeded.name << '\n'
        << write_schedule_csv(seeded.schedule);
  }
}

std::string refusal(const std::string& text) {
  try {
    (void)read_schedule_csv(text, "plan.csv");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "nothing thrown";
}

TEST(ScheduleCsv, ErrorsNameLineAndCell) {
  EXPECT_THAT(refusal("0F0\n0F0,0X1"),
              HasSubstr("[plan.read_schedule_csv] plan.csv:2: cell 2, '0X1': unknown kind; an action is"));
  EXPECT_THAT(refusal("F0"), HasSubstr("cell 1, 'F0': a stage number must come first"));
  EXPECT_THAT(refusal("0F"), HasSubstr("'0F': a micro-batch must follow"));
  EXPECT_THAT(refusal("0B"), HasSubstr("'0B': a micro-batch must follow"));
  EXPECT_THAT(refusal("0F0x"), HasSubstr("'x' is left over"));
  EXPECT_THAT(refusal("(0F0;1B0"), HasSubstr("')' is missing"));
  EXPECT_THAT(refusal("(0F0)NOW"), HasSubstr("'NOW' is no kind of group"));
  EXPECT_THAT(refusal("0F99999999999"), HasSubstr("a number is too large"));
  EXPECT_THAT(refusal("0F2000000"), HasSubstr("a number is too large"));
  EXPECT_THAT(refusal("0SEND_F0#1"), HasSubstr("'#EDGE>STAGE' must follow"));
  EXPECT_THAT(refusal(""), HasSubstr("the file is empty"));
}

// Oracle: no crash. Any text is a schedule or one error of kind kConfig; what was read is proven or refused, lowered or refused.
TEST(ScheduleCsv, AnyTextIsAScheduleOrAnError) {
  std::mt19937_64 random(11);
  const std::string_view words[] = {
      "0",       "1",           "2",           "9",           "1000000", "F",        "B",
      "I",       "W",           "SEND_F",      "RECV_F",      "SEND_B",  "RECV_B",   "UNSHARD",
      "RESHARD", "REDUCE_GRAD", "REDUCE_TIED", "OPTIMIZER",   "OFFLOAD", "PREFETCH", "RECOMPUTE",
      "(",       ")",           ";",           "OVERLAP_F_B", "BATCH",   "#",        ">",
      ",",       ",",           "\n",          " ",           "-",       "x"};
  int read = 0, proven = 0, lowered = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text;
    if (trial % 2 == 0) {
      for (uint64_t i = random() % 30; i > 0; --i) text += words[random() % std::size(words)];
    } else {  // sensible cells in any order
      for (uint64_t i = random() % 12; i > 0; --i) {
        text += std::to_string(random() % 3);
        text += words[5 + random() % 16];
        text += std::to_string(random() % 2);
        text += random() % 4 == 0 ? '\n' : ',';
      }
    }
    try {
      const ScheduleFile file = read_schedule_csv(text, "fuzz.csv");
      ++read;
      if (check_schedule(file.schedule).ok()) ++proven;
      if (add_communication(file.schedule, file.splits_backward).size() == file.schedule.size()) ++lowered;
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::kConfig || error.kind() == ErrorKind::kInvalidArgument) << text;
    }
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(proven, 5);
  EXPECT_GT(lowered, 100);
}

TEST(ScheduleCsv, TorchOnlyRefusesWhatTorchLacks) {
  const auto message = [](const std::string& csv) -> std::string {
    try {
      (void)write_schedule_csv(read_schedule_csv(csv, "x").schedule, true);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_THAT(message("0F0,0OPTIMIZER"),
              HasSubstr("rank 0, position 1, 0OPTIMIZER: torch.distributed.pipelining has no such action"));
  EXPECT_THAT(message("0F0,0SEND_F0#4>3"),
              HasSubstr("position 1, 0SEND_F0#4>3: torch.distributed.pipelining has no such"));
  EXPECT_THAT(message("(0SEND_F0;0RECV_B0)BATCH"), HasSubstr("no batches of messages"));
}

}  // namespace
}  // namespace trireme::plan
