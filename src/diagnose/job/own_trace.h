// Our own collective trace (docs/formats.md): rankN.trace of a run folder, live or after a kill.
#pragma once

#include "diagnose/job/story.h"

namespace trireme::diagnose {

/// Whether these first bytes are a collective trace, or a pointer file to one.
[[nodiscard]] bool is_own_trace(std::string_view head);

/// Adds the trace to the story as the trail of its rank. Returns the word for a file that cannot be read, or in part only.
[[nodiscard]] std::string read_own_trace(const std::string& path, const std::string& file, Story& story);

/// The same for one that has been read.
[[nodiscard]] std::string add_own_trace(profile::TraceSnapshot trace, const std::string& file, Story& story);

}  // namespace trireme::diagnose
