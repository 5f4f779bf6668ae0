// What a run of `trireme train` leaves to read beside its checkpoints: config.json, metrics.jsonl and TensorBoard's events.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "profile/metrics_log.h"
#include "profile/tensorboard_events.h"

namespace trireme::cli {

/// One writer per run folder: rank 0's. Not thread-safe.
class TrainRecords {
 public:
  /// Writes `config_json` at once: a full disk or a kill must not leave a run that --resume does not take. Lines of metrics after `step` are of
  /// a run that did not save them, and are dropped.
  TrainRecords(const std::string& run_dir, const std::string& config_json, int64_t step, bool continues);

  void add(int64_t step, std::span<const profile::Scalar> scalars);

  /// Writes it once per step, whatever run tested it, and flushes.
  void add_test_accuracy(int64_t step, double accuracy);

 private:
  profile::MetricsLog metrics_;
  profile::TensorBoardWriter events_;
  int64_t tested_step_ = -1;  ///< the last step whose accuracy is written
};

}  // namespace trireme::cli
