#include "cli/train_records.h"

#include <filesystem>
#include <fstream>

#include "base/replace_file.h"
#include "base/str.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// The folder is there, and the run's settings in it, before anything else is.
std::string opened_folder(const std::string& run_dir, const std::string& config_json) {
  fs::create_directories(run_dir);
  replace_file((fs::path(run_dir) / "config.json").string(), config_json, "train");
  return run_dir;
}

}  // namespace

TrainRecords::TrainRecords(const std::string& run_dir, const std::string& config_json, int64_t step, bool continues)
    : metrics_((fs::path(opened_folder(run_dir, config_json)) / "metrics.jsonl").string(), step),
      events_((fs::path(run_dir) / "tensorboard").string()) {
  std::ifstream earlier(fs::path(run_dir) / "metrics.jsonl");
  for (std::string line; std::getline(earlier, line);) {
    if (line.starts_with(str("{\"step\": ", step, ", \"test/accuracy\""))) tested_step_ = step;
  }
  if (continues) events_.mark_restart(step + 1);
}

void TrainRecords::add(int64_t step, std::span<const profile::Scalar> scalars) {
  metrics_.add(step, scalars);
  events_.add_scalars(step, scalars);
}

void TrainRecords::add_test_accuracy(int64_t step, double accuracy) {
  if (step == tested_step_) return;
  const profile::Scalar scalars[] = {{"test/accuracy", accuracy}};
  add(step, scalars);
  events_.flush();
  tested_step_ = step;
}

}  // namespace trireme::cli
