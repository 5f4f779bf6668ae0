// Who keeps whom waiting, told from the collective traces of the ranks alone: which calls do not end, who has not come to them, and who of
// those waits for somebody else in turn. What a rank does that is in no call is for others to find out (launch/hang_watch.h).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "profile/collective_trace.h"

namespace trireme::profile {

/// One call that some ranks are in and others not. All ranks are global ones.
struct StalledCall {
  std::string group;
  uint64_t call = 0;             ///< number within the group, or of the messages in this direction between the two
  std::string what;              ///< "all_reduce sum f32[1000] (bucket 2)", "recv f32[10] from 2"
  uint32_t step = 0;             ///< the largest one said by those who wait; 0: none
  std::vector<int> waiting;      ///< by rank
  std::vector<int> late;         ///< by rank: those who have not come, and those in it who cannot go on
  double waited_s = 0;           ///< of the one that came first
  uint64_t last_common = 0;      ///< the last call of this kind that all have finished; 0: none
  std::string last_common_what;  ///< empty: no trace has it any more
};

/// A rank that others wait for and that waits for nobody.
struct Culprit {
  int rank = 0;
  bool in_a_call = false;  ///< it is in a call that everybody is in, named below; else in none
  std::string call;        ///< "call 12 of group 'world', all_reduce sum f32[10]"
};

struct HangFinding {
  std::vector<StalledCall> calls;  ///< the one that has waited longest first
  std::vector<Culprit> culprits;   ///< by rank; empty where ranks wait for each other in a circle
  std::vector<int> circle;         ///< ranks that wait for each other, by rank
  /// For each rank that is late in one call and waits in another itself: "rank 1 waits in recv f32[10] from 2, ... for rank 2".
  std::vector<std::string> links;
  [[nodiscard]] bool empty() const { return calls.empty(); }
};

struct HangInputs {
  /// One for each rank whose trace is there.
  std::vector<TraceSnapshot> traces;
  uint64_t now_ns = 0;        ///< CLOCK_MONOTONIC
  uint64_t limit_ns = 0;      ///< a call that runs longer counts
  int num_ranks = INT32_MAX;  ///< of the job: higher ones stand in a damaged table only
  std::set<int>
      cannot_go;  ///< ranks that are known to be at fault themselves whatever call they are in: stopped, dead, or not waiting
};

/// Empty while no call has waited longer than the limit for somebody. A rank without a trace counts as late.
[[nodiscard]] HangFinding find_hang(const HangInputs& inputs);

/// The call of a record in words, with the global rank for root and peer. [never throws on what a damaged file may hold]
[[nodiscard]] std::string describe_call(const TraceSnapshot& trace, const TraceRecord& record);

}  // namespace trireme::profile
