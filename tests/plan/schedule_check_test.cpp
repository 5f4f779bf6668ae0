// Oracle: closed form. Small lists written by hand, each with one fault, and the sentence that must name it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/plan/schedule.h"

namespace trireme::plan {
namespace {

using ::testing::HasSubstr;

std::string fault(const std::string& csv, const ScheduleRules& rules = {}) {
  return check_schedule(read_schedule_csv(csv, "test.csv").schedule, rules).reason();
}

TEST(ScheduleCheck, TellsWhatItLearnt) {
  const Schedule schedule = make_schedule("1f1b", {2, 1, 3});
  const ScheduleStats stats = check_schedule(schedule).value();
  EXPECT_EQ(stats.ranks, 2);
  EXPECT_EQ(stats.stages, 2);
  EXPECT_EQ(stats.microbatches, 3);
  EXPECT_FALSE(stats.forward_only);
  EXPECT_EQ(stats.rank_of_stage, (std::vector<int>{0, 1}));
  EXPECT_EQ(stats.stage_peak, (std::vector<int>{2, 1}));
  EXPECT_EQ(stats.messages, 6);
  EXPECT_EQ(stats.actions, 2 * 3 * 3 + 2 * 6);
}

TEST(ScheduleCheck, NamesRankPositionAndActionOfAMissingReceive) {
  EXPECT_EQ(
      fault("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0"),
      "[plan.check_schedule] rank 0, position 2, 0RECV_B0: rank 1 has no 1SEND_B0; every send needs its receive.");
}

TEST(ScheduleCheck, FindsTheCircleOfTwoRanksThatSendFirst) {
  const std::string csv =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1";
  EXPECT_EQ(fault(csv),
            "[plan.check_schedule] rank 0, position 3, 0SEND_F1 waits for position 5 of rank 1; rank 1, position 4, "
            "1SEND_B0 waits for position 4 of rank 0: a circle, which stops when messages are not buffered. Let one of "
            "them receive first, or start both messages of a rank together (one batch).");
  const std::string batched =
      "0F0,0SEND_F0,0F1,(0SEND_F1;0RECV_B0)BATCH,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,(1SEND_B0;1RECV_F1)BATCH,1F1,1B1,1SEND_B1";
  EXPECT_EQ(fault(batched), "");
}

TEST(ScheduleCheck, NamesOrderCountsAndPlaces) {
  EXPECT_THAT(fault("0B0,0F0"), HasSubstr("rank 0, position 0, 0I0: its forward has not run; it must come first."));
  EXPECT_THAT(fault("0F0,0F0,0B0"), HasSubstr("rank 0, position 1, 0F0: it ran already; once is required."));
  EXPECT_THAT(fault("0F0,0F1,0B0"), HasSubstr("rank 0: 0I1 is missing; every stage must run every micro-batch."));
  EXPECT_THAT(fault("0F0,0SEND_F0,0B0\n1F0,1B0"),
              HasSubstr("rank 0, position 2, 0I0: the gradient from stage 1 is not there; 0RECV_B0 must come first."));
  EXPECT_THAT(fault("0F0,1F0,0B0,1B0"), HasSubstr("0I0: the backward of stage 1 has not run; it must come first."));
  EXPECT_THAT(fault("0F0,1F0,1B0,0I0\n0W0"),
              HasSubstr("rank 1, position 0, 0W0: stage 0 is on rank 0; everything of one stage must be on one rank."));
  EXPECT_THAT(fault("0F0,1F0,0SEND_F0,1B0,0B0"),
              HasSubstr("stages 0 and 1 are both on this rank; remove the message."));
  EXPECT_THAT(fault("0F0,0B0,2F0"), HasSubstr("stage 1 has no forward on any of 1 ranks; every stage of 3 must run."));
  EXPECT_THAT(fault("0F0,0B0,0F900000"), HasSubstr("need at least 900001 actions; there are 4."));
}

TEST(ScheduleCheck, NamesMemoryAgainstItsBounds) {
  ScheduleRules rules;
  rules.stage_bounds = {2};
  EXPECT_EQ(fault("0F0,0F1,0B0,0B1", rules), "");
  rules.stage_bounds = {1};
  EXPECT_THAT(fault("0F0,0F1,0B0,0B1", rules),
              HasSubstr("rank 0, position 1, 0F1: activations of 2 micro-batches of stage 0 lie in memory; at most 1"));
  EXPECT_EQ(fault("0F0,0OFFLOAD0,0F1,0B1,0PREFETCH0,0B0", rules), "");
  EXPECT_EQ(fault("0F0,0F1,0RECOMPUTE0,0B0,0RECOMPUTE1,0B1", rules), "");
  rules.stage_bounds = {};
  rules.rank_bounds = {1};
  EXPECT_THAT(fault("0F0,1F0,1B0,0B0", rules), HasSubstr("2 micro-batches lie in this rank's memory; at most 1"));
}

TEST(ScheduleCheck, MessagesBetweenTwoRanksKeepOneOrder) {
  EXPECT_THAT(
      fault("0F0,0F1,(0SEND_F0;0SEND_F1)BATCH\n(1RECV_F1;1RECV_F0)BATCH,1F0,1F1"),
      HasSubstr("rank 0, position 2, 0SEND_F0: it is number 0 of what goes to rank 1, which receives as number 0 "
                "1RECV_F1 at position 0; both ranks must name them in one order."));
  EXPECT_EQ(fault("0F0,0F1,(0SEND_F0;0SEND_F1)BATCH\n(1RECV_F0;1RECV_F1)BATCH,1F0,1F1"), "");
}

TEST(ScheduleCheck, StepEndsAfterItsReductions) {
  EXPECT_EQ(fault("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD,0OPTIMIZER"), "");
  EXPECT_THAT(fault("0F0,0REDUCE_GRAD,0B0"), HasSubstr("backwards of the stage are still to come"));
  EXPECT_THAT(fault("0F0,0B0,0OPTIMIZER,0REDUCE_GRAD"), HasSubstr("0REDUCE_GRAD: it comes after the optimizer step"));
  EXPECT_THAT(fault("0UNSHARD,0F0,0RESHARD,0B0"), HasSubstr("0I0: the stage's weights are not gathered"));
  EXPECT_EQ(fault("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_TIED1\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_TIED0"), "");
  EXPECT_THAT(fault("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_TIED1\n1RECV_F0,1F0,1B0,1SEND_B0"),
              HasSubstr("rank 0, position 5, 0REDUCE_TIED1: rank 1 does not take part"));
}

TEST(ScheduleCheck, SkipConnectionsAreEdges) {
  ScheduleRules rules;
  rules.edges = {{0, 1}, {1, 2}, {0, 2}};
  const Schedule schedule = add_communication(make_compute_schedule("1f1b", {3, 1, 4}), false, rules.edges);
  EXPECT_EQ(check_schedule(schedule, rules).reason(), "");
  EXPECT_EQ(check_schedule(schedule, rules).value().messages, 3 * 2 * 4);
  EXPECT_THAT(
      check_schedule(make_schedule("1f1b", {3, 1, 4}), rules).reason(),
      HasSubstr("rank 0, position 7, 0I0: the gradient from stage 2 is not there; 0RECV_B0#2>2 must come first."));
}

TEST(ScheduleCheck, LoweringSaysWhatCannotRun) {
  const auto message = [](const std::string& csv) -> std::string {
    try {
      (void)add_communication(read_schedule_csv(csv, "test.csv").schedule, false);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_THAT(message("0F0,0B0\n1B0,1F0"), HasSubstr("rank 0, position 1, 0I0: what it reads is never made before it"));
  EXPECT_THAT(message("0F0,0SEND_F0\n1F0"), HasSubstr("this list has messages already"));
  EXPECT_THAT(message("0F0,1F0\n1F0"), HasSubstr("rank 1, position 0, 1F0: stage 1 is on rank 0 too"));
}

}  // namespace
}  // namespace trireme::plan
