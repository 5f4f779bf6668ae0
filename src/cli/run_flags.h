// The flags of `trireme run`: torchrun's and torch.distributed.launch's, in both spellings, and our own.
#pragma once

#include <string>
#include <vector>

#include "launch/job.h"

namespace trireme::cli {

struct RunRequest {
  launch::JobSpec spec;
  bool help = false;
  bool dry_run = false;
  bool json = false;
};

/// Throws kConfig naming the flag: unknown ones with the nearest known one, those that Trireme does not have yet with
/// "not there yet".
[[nodiscard]] RunRequest parse_run_flags(const std::vector<std::string>& args);

[[nodiscard]] const char* run_help();

/// All flags in their dashed spelling, for completion and its test.
[[nodiscard]] std::vector<std::string> run_flag_names();

}  // namespace trireme::cli
