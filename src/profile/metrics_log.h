// metrics.jsonl: one JSON object a line, one line per logged step. Example:
//   {"step": 120, "epoch": 0.256, "loss": 0.8123, "accuracy": 0.71, "learning_rate": 0.05, "images_per_s": 5100.2}
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "profile/tensorboard_events.h"

namespace trireme::profile {

/// Purpose        Appends lines; a line is handed to the kernel whole, so a killed run leaves at most one torn line.
/// Thread safety  one thread at a time.
class MetricsLog {
 public:
  /// Opens `path` for appending. With keep_through_step >= 0, first drops lines of later steps and a torn last line:
  /// a run resumed at that step writes them again. Errors: kIo with path and reason.
  explicit MetricsLog(const std::string& path, int64_t keep_through_step = -1);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  /// Tags become the keys; nan and infinities become null.
  void add(int64_t step, std::span<const Scalar> scalars);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace trireme::profile
