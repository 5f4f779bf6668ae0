// From a file to a Timeline: a Chrome trace (PyTorch's or ours), or a collective trace of a run folder.
#pragma once

#include <string>
#include <vector>

#include "profile/collective_trace.h"
#include "trace/byte_source.h"
#include "trace/timeline.h"

namespace trireme::trace {

/// One pass, in memory that grows with the spans kept (24 bytes each), not with the file. `name` is for notices and, where the file does not say it,
/// for the rank. Throws kIo when the file cannot be read; a file in which no event can be read gives num_events 0 and a notice that says why.
[[nodiscard]] Timeline read_timeline(std::unique_ptr<ByteSource> source, const std::string& name);

/// Steps are the numbers in the records; a step lasts from its first call to the next step's first call.
[[nodiscard]] Timeline timeline_of(const profile::TraceSnapshot& snapshot, const std::string& name);

/// Either kind, told by its first bytes. Throws kIo when the file cannot be read, kInvalidArgument when nothing in it can be.
[[nodiscard]] Timeline load_timeline(const std::string& path);

/// What the words of a command line stand for: a file for itself, a folder for its trace/rank*.trace, or for the .json and .json.gz in it and in its folder
/// traces/ that are named like a trace. Ranks are settled. A file that was named must be readable, throwing as load_timeline() does; one that was only found is
/// left out with a line in `notices`. Throws kIo for a folder without any.
[[nodiscard]] std::vector<Timeline> load_timelines(const std::vector<std::string>& paths,
                                                   std::vector<std::string>& notices);

/// Ranks that no file said, from file names ("rank3.json", "worker_2.pt.trace.json") or the order of the files. Throws kInvalidArgument when two files
/// are of one rank.
void settle_ranks(std::vector<Timeline>& timelines);

}  // namespace trireme::trace
