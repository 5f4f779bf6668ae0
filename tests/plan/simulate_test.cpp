// Oracle: closed forms of the papers with equal times; a naive execution in schedule_oracle.cpp for any times; hand-computed cases of
// messages, slow ranks and memory; and laws: a faster link is never slower.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "plan/schedule_oracle.h"
#include "trireme/base/error.h"
#include "trireme/plan/simulate.h"

namespace trireme::plan {
namespace {

using ::testing::HasSubstr;

SimulateOptions unit_times(double forward = 1, double input = 1, double weight = 1) {
  SimulateOptions options;
  StageCost cost;
  cost.forward_s = forward;
  cost.input_s = input;
  cost.weight_s = weight;
  options.stages = {cost};
  return options;
}

SimulatedStep run(const std::string& name, int p, int v, int m, const SimulateOptions& options) {
  return simulate(make_schedule(name, {p, v, m}), {}, options);
}

TEST(Simulate, EqualsTheNaiveExecutionOnEverySchedule) {
  std::mt19937_64 random(7);
  for (const std::string& name : schedule_names()) {
    for (const int p : {1, 2, 3, 4, 8}) {
      for (const int m : {1, 3, 8, 17}) {
        const int v = name == "zbv" ? 2 : name == "interleaved" ? 3 : 1;
        const double f = 1 + static_cast<double>(random() % 5), b = 1 + static_cast<double>(random() % 5),
                     w = 1 + static_cast<double>(random() % 5);
        const Schedule schedule = make_schedule(name, {p, v, m});
        const SimulatedStep step = simulate(schedule, {}, unit_times(f, b, w));
        const auto naive = run_with_times(schedule, step.rank_of_stage, f, b, w);
        double last = 0;
        for (int rank = 0; rank < p; ++rank) {
          last = std::max(last, naive[rank].last_end);
          EXPECT_EQ(step.ranks[rank].compute_s, naive[rank].busy);
          EXPECT_EQ(step.ranks[rank].bubble_s, naive[rank].last_end - naive[rank].first_start - naive[rank].busy)
              << name;
          EXPECT_EQ(step.ranks[rank].exposed_s, 0);
        }
        EXPECT_EQ(step.step_s, last) << name << " p" << p << " m" << m;
      }
    }
  }
}

TEST(Simulate, PartsOfEveryRankAddUpToTheStep) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const SeededSchedule seeded = seeded_schedule(seed);
    SimulateOptions options = unit_times(2, 3, 1);
    options.stages[0].recompute_s = 2;
    options.stages[0].reduce_s = 4;
    options.stages[0].copy_s = 0.5;
    options.stages[0].gather_s = 0.25;
    options.stages[0].tied_s = 0.5;
    options.stages[0].optimizer_s = 1;
    options.edge_bytes = {100};
    options.link = {0.1, 200};
    options.blocking = seed % 2 == 0;
    const SimulatedStep step = simulate(seeded.schedule, seeded.rules, options);
    for (const RankTime& rank : step.ranks) {
      EXPECT_NEAR(rank.compute_s + rank.exposed_s + rank.bubble_s + rank.outside_s, step.step_s, 1e-9) << seeded.name;
      EXPECT_GE(rank.bubble_s, -1e-9);
      EXPECT_GE(rank.outside_s, -1e-9);
    }
    for (size_t rank = 0; rank < seeded.schedule.size(); ++rank) {
      for (const SimulatedAction& action : step.actions[rank])
        EXPECT_LE(action.end_s, step.step_s + 1e-9) << seeded.name;
    }
    for (const auto& memory : step.memory) EXPECT_NEAR(memory.back().bytes, 0, 1e-9) << seeded.name;
  }
}

TEST(Simulate, MessagesByHand) {
  // One micro-batch over two stages, F = B = W = 1, messages of 0.5 each way: F 1 | 0.5 | F 1, B + W 2 | 0.5 | B + W 2.
  SimulateOptions options = unit_times();
  options.edge_bytes = {10};
  options.link = {0.25, 40};
  const SimulatedStep step = run("1f1b", 2, 1, 1, options);
  EXPECT_DOUBLE_EQ(step.step_s, 7);
  EXPECT_DOUBLE_EQ(step.ranks[0].compute_s, 3);
  EXPECT_DOUBLE_EQ(step.ranks[0].exposed_s, 0.5);  // the gradient; it waited 3.5 for the other rank's work before
  EXPECT_DOUBLE_EQ(step.ranks[0].bubble_s, 3.5);
  EXPECT_DOUBLE_EQ(step.ranks[1].exposed_s, 0.5);
  EXPECT_DOUBLE_EQ(step.ranks[1].outside_s, 1 + 2.5);
  // Hidden: with much work in flight, only the way in and out of the pipeline shows.
  const SimulatedStep many = run("1f1b", 2, 1, 32, options);
  EXPECT_LT(many.step_s, 3 * 32 + 3 + 2 * 32 * 0.5);
  options.blocking = true;
  EXPECT_GE(run("1f1b", 2, 1, 32, options).step_s, 3 * 32 + 3 + 32 * 0.5);
}

TEST(Simulate, SlowRankSetsThePace) {
  SimulateOptions options = unit_times();
  options.rank_slowdown = {1, 1, 1.5, 1};
  // The slow rank works 1.5 * 3 * m; before its first action come two forwards, after its last one two backwards of 2.
  const SimulatedStep step = run("1f1b", 4, 1, 16, options);
  EXPECT_DOUBLE_EQ(step.ranks[2].compute_s, 1.5 * 3 * 16);
  EXPECT_GE(step.step_s, 1.5 * 3 * 16 + 2 + 4);
  EXPECT_LE(step.step_s, 1.5 * (3 * 16 + 3 * 3));
  options.rank_slowdown = {};
  options.edge_bytes = {1};
  options.link = {0, 10};
  const double even = run("1f1b", 4, 1, 16, options).step_s;
  options.link_slowdown = {1, 20, 1, 1};
  EXPECT_GT(run("1f1b", 4, 1, 16, options).step_s, even + 1);
}

TEST(Simulate, FasterLinkIsNeverSlowerAndNoMessagesAreTheLimit) {
  for (const std::string& name : schedule_names()) {
    const int v = name == "zbv" ? 2 : name == "interleaved" ? 2 : 1;
    for (const bool blocking : {false, true}) {
      SimulateOptions options = unit_times(1, 1, 1);
      options.edge_bytes = {1};
      options.blocking = blocking;
      double before = 1e300;
      for (const double rate : {0.2, 0.5, 1.0, 3.0, 10.0, 1000.0, 1e9}) {
        options.link.bytes_per_s = rate;
        const double now = run(name, 4, v, 8, options).step_s;
        EXPECT_LE(now, before * (1 + 1e-12)) << name << ' ' << rate;
        before = now;
      }
      if (blocking) continue;
      EXPECT_NEAR(before, run(name, 4, v, 8, unit_times()).step_s, 1e-6) << name;
    }
  }
}

TEST(Simulate, MemoryByStageFollowsTheMicrobatchesInFlight) {
  SimulateOptions options = unit_times();
  options.stages[0].activation_bytes = 10;
  options.stages[0].static_bytes = 1000;
  const SimulatedStep step = run("1f1b", 4, 1, 8, options);
  EXPECT_EQ(step.stage_peak_bytes, (std::vector<double>{1040, 1030, 1020, 1010}));
  EXPECT_EQ(run("gpipe", 4, 1, 8, options).stage_peak_bytes, std::vector<double>(4, 1080));
  EXPECT_EQ(run("zbv", 4, 2, 8, options).rank_peak_bytes[0], 2000 + 80);
  // Recomputation keeps 2 bytes of each micro-batch and all of the one that runs backward.
  options.stages[0].checkpoint_bytes = 2;
  ScheduleOptions recompute{4, 1, 8};
  recompute.recompute = true;
  const SimulatedStep less = simulate(make_schedule("1f1b", recompute), {}, options);
  EXPECT_EQ(less.stage_peak_bytes[0], 1000 + 3 * 2 + 10);
  // The first forward begins at once; what is there at the end is what stays.
  EXPECT_EQ(step.memory[0].front().bytes, 1010);
  EXPECT_EQ(step.memory[0].back().bytes, 1000);
}

TEST(Simulate, ReductionHidesBehindLaterBackwardsAndTheRestIsExposed) {
  ScheduleOptions sizes{2, 2, 4};
  sizes.reduce_grads = sizes.optimizer_step = true;
  SimulateOptions options = unit_times();
  options.stages[0].optimizer_s = 0.5;
  const double none = simulate(make_schedule("interleaved", sizes), {}, options).step_s;
  options.stages[0].reduce_s = 1;
  const SimulatedStep step = simulate(make_schedule("interleaved", sizes), {}, options);
  EXPECT_GT(step.step_s, none);      // the first stage's comes last and is seen
  EXPECT_LT(step.step_s, none + 2);  // the other one of the rank ran beside computation
  EXPECT_DOUBLE_EQ(step.ranks[0].exposed_s, 1);
}

TEST(Simulate, RefusesInOneSentence) {
  const auto message = [](const Schedule& schedule, const SimulateOptions& options) -> std::string {
    try {
      (void)simulate(schedule, {}, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  const Schedule schedule = make_schedule("1f1b", {2, 1, 2});
  SimulateOptions options = unit_times();
  options.rank_slowdown = {1};
  EXPECT_THAT(message(schedule, options), HasSubstr("rank_slowdown has 1 entries; none or 2 are required."));
  options = unit_times(-1);
  EXPECT_THAT(message(schedule, options), HasSubstr("a duration is -1; a finite number of at least 0 is required."));
  EXPECT_THAT(message({{{ActionKind::kBackwardInput, 0, 0}}}, unit_times()), HasSubstr("[plan.check_schedule]"));
}

TEST(Simulate, TimelinesShowEveryRank) {
  const Schedule schedule = make_schedule("1f1b", {2, 1, 2});
  const SimulatedStep step = simulate(schedule, {}, unit_times());
  EXPECT_EQ(timeline_text(schedule, step, 28 + 18),
            "rank 0    0011....==--..==--  66.7 % 2 B\n"
            "rank 1    ..00==--11==--....  66.7 % 1 B\n"
            "          0              9 s\n");
  const std::string svg = timeline_svg(schedule, step, "a < b");
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr(">rank 1<"));
  // 9 s: a mark for each, so that they do not meet; a title of 200 letters is made to fit 1290 pixels.
  EXPECT_THAT(svg, testing::AllOf(HasSubstr(">1 s<"), HasSubstr(">9 s<"), testing::Not(HasSubstr(">1.2 s<"))));
  EXPECT_THAT(svg, HasSubstr("font-size=\"15.0\""));
  EXPECT_THAT(timeline_svg(schedule, step, std::string(200, 'm')), HasSubstr("font-size=\"11.7\""));
  const std::string trace = timeline_trace(schedule, step);
  EXPECT_THAT(trace, HasSubstr("\"name\":\"1SEND_B1\""));
}

}  // namespace
}  // namespace trireme::plan
