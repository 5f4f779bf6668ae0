// The training run of `trireme train` on one rank.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace trireme::cli {

struct TrainResult {
  std::string recipe;
  int ranks = 1;
  int64_t steps = 0;
  double epochs = 0;
  double test_accuracy = 0;  ///< share of the test images, 0 .. 1; -1 when the run was interrupted
  double train_loss = 0;     ///< mean over the last logged steps
  double training_s = 0;     ///< of this process's training, evaluation in between counted, start-up not
  double start_s = 0;        ///< from the start of the rank to its first step
  std::string run_dir;       ///< absolute
  bool interrupted = false;
  int stop_signal = 0;  ///< what interrupted it, on whichever rank
};

/// {"torch_built", "torch_loaded", "backends": [{"name", "ok", "reason"}]}: what `trireme --version` asks for.
[[nodiscard]] std::string version_json();

enum class Start {
  kNew,
  kResume,   ///< from the newest good checkpoint in run_dir, bit for bit as if the run had never stopped
  kRestart,  ///< the same where there is one; the job failed, and may have before it saved any
};

struct RunOptions {
  std::string run_dir;
  Start start = Start::kNew;
  bool resumed_limit =
      false;        ///< max_steps is the earlier run's; reached, it is set to 0 in the config, and said on stderr
  std::string job;  ///< noted in config.json, for its restarts
};

/// Trains as `config` says; every rank calls it. Rank 0 writes metrics, events, checkpoints and config.json into the run folder.
/// [collective, blocking]
///
/// Errors   kConfig     no checkpoint to continue from.
///          kMismatch   ranks resumed from different checkpoints; the message shows both.
/// Signals  SIGINT and SIGTERM end the run at the next step, with a checkpoint.
[[nodiscard]] TrainResult run_training(Config& config, const RunOptions& options);

}  // namespace trireme::cli
