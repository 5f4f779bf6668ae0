// Oracle: the schedule, against the marks of steps in the files that LibTorch's own profiler wrote, read with a strict JSON parser.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/temp_dir.h"
#include "trireme/base/error.h"
#include "trireme/profile/profiler.h"

namespace trireme::profile {
namespace {

struct Trace {
  std::set<int64_t> steps;
  int num_matmuls = 0;
  bool negative = false;
  nlohmann::json cycle;
  nlohmann::json ranks;
};

Trace read_trace(const std::string& file) {
  std::ifstream in(file);
  const nlohmann::json trace = nlohmann::json::parse(in);
  Trace result;
  result.cycle = trace.at("trireme");
  result.ranks = trace.at("distributedInfo");
  for (const auto& event : trace.at("traceEvents")) {
    const std::string name = event.value("name", "");
    if (event.value("ph", "") != "X") continue;
    result.negative = result.negative || event.value("dur", 0.0) < 0;
    if (name.starts_with("ProfilerStep#")) result.steps.insert(std::stoll(name.substr(13)));
    if (name == "aten::addmm") ++result.num_matmuls;
  }
  return result;
}

std::vector<Trace> traces_of(const ProfileSchedule& schedule, int num_steps) {
  const test::TempDir folder;
  torch::nn::Linear net(8, 8);
  std::vector<std::string> files;
  {
    Profiler profiler({.schedule = schedule, .folder = folder / "traces", .rank = 1, .world_size = 4});
    for (int step = 0; step < num_steps; ++step) {
      (void)net->forward(torch::rand({4, 8}));
      profiler.step();
    }
    profiler.finish();
    files = profiler.files();
  }
  std::vector<Trace> traces;
  for (const std::string& file : files) traces.push_back(read_trace(file));
  return traces;
}

TEST(Profiler, WritesTheStepsOfItsScheduleOneFileACycle) {
  const std::vector<Trace> two = traces_of({.wait = 1, .warmup = 1, .active = 3, .repeat = 2}, 12);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].steps, (std::set<int64_t>{2, 3, 4}));
  EXPECT_EQ(two[1].steps, (std::set<int64_t>{7, 8, 9}));
  for (const Trace& trace : two) {
    EXPECT_EQ(trace.num_matmuls, 3);  // one a step, and none of the warm-up
    EXPECT_FALSE(trace.negative);
    EXPECT_EQ(trace.cycle.at("partial"), false);
    EXPECT_EQ(trace.ranks.at("rank"), 1);
    EXPECT_EQ(trace.ranks.at("world_size"), 4);
  }
  EXPECT_EQ(two[1].cycle.at("first_step"), 7);
  EXPECT_EQ(two[1].cycle.at("last_step"), 9);
  const std::vector<Trace> at_once = traces_of({.wait = 0, .warmup = 0, .active = 5, .repeat = 1}, 7);
  ASSERT_EQ(at_once.size(), 1U);
  EXPECT_EQ(at_once[0].steps, (std::set<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(traces_of({.wait = 2, .warmup = 1, .active = 3, .repeat = 5}, 30).size(), 5U);
}

TEST(Profiler, WritesTheStepsOfACycleThatTheLoopDoesNotFinishAndSaysSo) {
  const std::vector<Trace> traces = traces_of({.wait = 1, .warmup = 1, .active = 4, .repeat = 1}, 4);
  ASSERT_EQ(traces.size(), 1U);
  EXPECT_EQ(traces[0].num_matmuls, 2);
  EXPECT_EQ(traces[0].cycle.at("partial"), true);
  EXPECT_EQ(traces[0].cycle.at("first_step"), 2);
  EXPECT_EQ(traces[0].cycle.at("last_step"), 3);
  EXPECT_TRUE(traces_of({.wait = 1, .warmup = 3, .active = 4, .repeat = 1}, 2).empty());  // ends within the warm-up
}

TEST(Profiler, RecordsMemoryWhereAsked) {
  for (const bool asked : {false, true}) {
    const test::TempDir folder;
    Profiler profiler({.schedule = {.wait = 0, .warmup = 1, .active = 1},
                       .folder = folder.path(),
                       .record_memory = asked,
                       .rank = 0});
    for (int step = 0; step < 2; ++step) {
      (void)torch::rand({64, 64});
      profiler.step();
    }
    ASSERT_EQ(profiler.files().size(), 1U);
    std::ifstream in(profiler.files()[0]);
    const nlohmann::json trace = nlohmann::json::parse(in);
    int allocations = 0;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.value("name", "") == "[memory]" && event.at("args").value("Bytes", 0) >= 64 * 64 * 4) ++allocations;
    }
    EXPECT_EQ(allocations > 0, asked);
  }
}

TEST(Profiler, SaysWhatIsWrong) {
  EXPECT_THROW(Profiler({.schedule = {.active = 0}}), Error);
  const test::TempDir folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(Profiler({.folder = folder / "file/traces"}), Error);
}

}  // namespace
}  // namespace trireme::profile
