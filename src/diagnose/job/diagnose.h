// `trireme diagnose` as a function: reads whatever is named, and says what went wrong.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/report.h"

namespace trireme::diagnose {

struct DiagnoseRequest {
  std::vector<std::string> paths;  ///< files and folders; "-" is standard input
  std::string job;                 ///< id of a job of `trireme run`, running or not; empty: none
  std::optional<int> world_size;   ///< how many ranks the job has, where the files do not tell
};

/// Findings most probable first, facts, and how each file was understood. What is wrong with a file is told in its note.
///
/// Cost    one pass over each file; a log of 1 GiB takes seconds, memory does not grow with it. Pickles up to 1 GiB and JSON reports up to
///         256 MiB are held whole.
/// Errors  kInvalidArgument  no such job.
[[nodiscard]] Report diagnose(const DiagnoseRequest& request);

}  // namespace trireme::diagnose
