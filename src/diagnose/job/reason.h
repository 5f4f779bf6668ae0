// From what was read to causes: who failed first, what follows from that, who is missing.
#pragma once

#include "diagnose/job/compare_trails.h"
#include "diagnose/job/story.h"
#include "diagnose/report.h"

namespace trireme::diagnose {

/// Adds the job's findings to `report`, most probable first. A failure that explains others (a rank that the kernel killed, and the time-outs of
/// those that waited for it) is one finding with the evidence of both; its consequences are not told as causes.
void reason(Story& story, const CompareOptions& options, Report& report);

// The parts, in reason_ends.cpp, reason_slow.cpp, reason_waits.cpp and reason_watch.cpp.

/// How ranks ended, put together from all that tell of it: one for each rank, or for each process whose rank is not told.
[[nodiscard]] std::vector<RankEnd> merged_ends(const std::vector<RankEnd>& told);

/// Whether these last words only say that another rank was lost, late or ended.
[[nodiscard]] bool is_consequence(std::string_view words);

/// Ranks that failed by themselves: killed, crashed, ended with an error.
[[nodiscard]] std::vector<Finding> failures_of(const Story& story, const std::vector<RankEnd>& ends);

/// Ranks that the others waited for in step after step, from our own traces.
[[nodiscard]] std::vector<Finding> slow_ranks_of(const Story& story);

/// Ranks that the launcher named while the others waited for them.
[[nodiscard]] std::vector<Finding> hangs_of(const Story& story);

/// What logs say of calls: time-outs of watchdogs, ranks that did not come, calls that did not match.
[[nodiscard]] std::vector<Finding> waits_of(const Story& story, const CompareOptions& options);

}  // namespace trireme::diagnose
