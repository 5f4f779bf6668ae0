// Oracle: closed form; each line is JSON to nlohmann's parser; a resumed log equals that of the run that never stopped.
#include "profile/metrics_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "support/temp_dir.h"

namespace trireme::profile {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void log_steps(MetricsLog& log, int from, int to) {
  for (int step = from; step <= to; ++step) {
    const Scalar scalars[] = {{"loss", 1.0 / step}, {"bad", std::nan("")}};
    log.add(step, scalars);
  }
}

TEST(MetricsLog, WritesOneObjectALine) {
  const test::TempDir folder;
  MetricsLog log(folder / "m.jsonl");
  log_steps(log, 2, 3);
  EXPECT_EQ(
      read(folder / "m.jsonl"),
      "{\"step\": 2, \"loss\": 0.5, \"bad\": null}\n{\"step\": 3, \"loss\": 0.3333333333333333, \"bad\": null}\n");
}

TEST(MetricsLog, ResumedLogEqualsTheUninterruptedOne) {
  const test::TempDir folder;
  {
    MetricsLog whole(folder / "whole");
    log_steps(whole, 1, 20);
  }
  const std::string want = read(folder / "whole");
  for (const char* tail : {"", "{\"step\": 14, \"lo", "garbage\n"}) {
    {
      MetricsLog first(folder / "cut");
      log_steps(first, 1, 13);
    }
    std::ofstream(folder / "cut", std::ios::app | std::ios::binary) << tail;
    {
      MetricsLog second(folder / "cut", 10);
      log_steps(second, 11, 20);
    }
    EXPECT_EQ(read(folder / "cut"), want) << tail;
    std::ofstream(folder / "cut", std::ios::trunc);
  }
}

}  // namespace
}  // namespace trireme::profile
