// A hang in words for people and as JSON for programs (docs/errors.md, "A hang").
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/process_look.h"
#include "profile/hang_analysis.h"

namespace trireme::launch {

struct HangStory {
  bool all_busy = false;  ///< every late rank says that it is busy: news, and no hang
  std::string text;       ///< whole lines
  std::string json;       ///< one entry of hang.json
};

/// `looks` has what the processes of the culprits do, by rank; one that is missing counts as gone. `run_dir` holds their reports.
[[nodiscard]] HangStory tell_hang(const profile::HangFinding& finding,
                                  const std::vector<profile::TraceSnapshot>& traces,
                                  const std::map<int, ProcessLook>& looks, const std::string& run_dir);

/// The other ranks have ended, and these are stopped.
[[nodiscard]] HangStory tell_stopped_last(const std::vector<int>& ranks, double waited_s,
                                          const std::map<int, ProcessLook>& looks, const std::string& run_dir);

/// "group 'world' call 17, all_reduce sum f32[1000] (bucket 0), step 5"
[[nodiscard]] std::string call_text(const profile::StalledCall& call);

/// "rank 3", "ranks 0, 2"
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);

/// "3.1 s"
[[nodiscard]] std::string seconds_text(double seconds);

/// Whether a rank says that it is busy and can be. `trace` may be null.
[[nodiscard]] bool is_busy(const profile::TraceSnapshot* trace, const ProcessLook& look);

}  // namespace trireme::launch
