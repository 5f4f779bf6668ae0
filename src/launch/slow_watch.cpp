#include "launch/slow_watch.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/replace_file.h"
#include "base/str.h"
#include "launch/failure_report.h"

namespace trireme::launch {
namespace {

int64_t unix_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

nlohmann::json json_of(const profile::StragglerNews& news) {
  return {{"kind", news.slow ? "slow" : "over"},
          {"unix_ns", unix_ns()},
          {"rank", news.rank},
          {"host", news.host},
          {"first_step", news.first_step},
          {"last_step", news.last_step},
          {"steps", news.num_steps},
          {"late_ms", ms(news.mean.late_ns)},
          {"step_ms", ms(news.step_ns)},
          {"data_ms", ms(news.mean.data_ns)},
          {"communication_ms", ms(news.mean.communication_ns)},
          {"compute_ms", ms(news.mean.compute_ns)},
          {"cause", news.cause()},
          {"words", news.words()}};
}

}  // namespace

SlowWatch::SlowWatch(std::string run_dir, profile::StragglerOptions options)
    : run_dir_(std::move(run_dir)), options_(options), watch_(options) {}

std::vector<std::string> SlowWatch::look(const std::vector<profile::TraceSnapshot>& traces) {
  std::vector<std::string> lines;
  for (const profile::StragglerNews& news : watch_.look(traces)) {
    lines.push_back(str("[launch] ", news.slow ? "SLOW: " : "", news.words(), ".",
                        news.slow ? str(" More: trireme trace report ", short_path(run_dir_), "\n") : "\n"));
    told_.push_back(json_of(news).dump());
  }
  if (lines.empty()) return lines;
  std::string all = "{\"schema\": 1, \"slow\": [\n";
  for (size_t i = 0; i < told_.size(); ++i) all += str(i > 0 ? ",\n" : "", told_[i]);
  replace_file(run_dir_ + "/slow.json", all + "\n]}\n", "launch.watch");
  return lines;
}

}  // namespace trireme::launch
