// Says of a running job which rank the others wait for in step after step, from the ranks' collective traces.
#pragma once

#include <string>
#include <vector>

#include "profile/straggler.h"

namespace trireme::launch {

/// Thread safety None: of the thread that watches.
/// Files         slow.json in the run folder: all that was told so far.
class SlowWatch {
 public:
  SlowWatch(std::string run_dir, profile::StragglerOptions options);

  [[nodiscard]] bool is_on() const { return options_.num_steps > 0; }
  /// What is new, for people, in whole lines. Throws kIo when slow.json cannot be written.
  [[nodiscard]] std::vector<std::string> look(const std::vector<profile::TraceSnapshot>& traces);

 private:
  std::string run_dir_;
  profile::StragglerOptions options_;
  profile::StragglerWatch watch_;
  std::vector<std::string> told_;  ///< JSON
};

}  // namespace trireme::launch
