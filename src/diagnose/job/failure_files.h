// The launchers' own reports: failure.json and hang.json of `trireme run` (docs/errors.md), and the error files that @record of
// torch.distributed.elastic writes.
#pragma once

#include "base/pickle_reader.h"
#include "diagnose/job/story.h"

namespace trireme::diagnose {

[[nodiscard]] bool is_failure_file(std::string_view head);

/// Returns the word for a file that is neither; empty when all is well.
[[nodiscard]] std::string add_failure_file(const pickle::Value& root, const std::string& file, Story& story);

}  // namespace trireme::diagnose
