// What `trireme train` can be told, and where each value came from.
#pragma once

#include <optional>
#include <string>

#include "base/config.h"

namespace trireme::cli {

struct TrainCommand {
  Config config;
  std::optional<std::string> resume;  ///< --resume: the run folder, found where none was named
  bool resume_newest = false;         ///< --resume named none
  bool resumed_limit = false;         ///< max_steps is the earlier run's, not said now
  bool json = false;
};

/// Reads flags, environment (TRIREME_TRAIN_...), --config file and defaults. Prints help and returns nothing where that was asked for;
/// throws kConfig on wrong use.
[[nodiscard]] std::optional<TrainCommand> parse_train_command(int argc, char** argv);

/// The newest run folder below `parent` that holds a checkpoint; throws kConfig when there is none.
[[nodiscard]] std::string newest_run_with_checkpoint(const std::string& parent);

}  // namespace trireme::cli
