// What the recorded calls of several ranks say when they are laid side by side.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/finding.h"
#include "diagnose/job/call_trail.h"

namespace trireme::diagnose {

struct CompareOptions {
  std::optional<int> world_size = {};
  /// Of a job that runs: CLOCK_REALTIME now. Calls younger than `patience_ns` are then on their way, not stuck.
  std::optional<int64_t> live_now_ns = {};
  int64_t patience_ns = 3'000'000'000;
};

/// The ranks of one group with their calls, as the parts of the comparison see them.
struct GroupRows {
  std::string key;
  std::string name;
  std::vector<int> members;               ///< global; those with a trail where no list of members is told
  std::map<int, const GroupTrail*> rows;  ///< by global rank; a member that called nothing has an empty row
  std::vector<int> no_dump;               ///< members without a trail
};

/// A place where somebody waits: what he is in, and for whom.
struct Wait {
  int rank = 0;
  std::string group;
  const Call* call = nullptr;
  std::vector<int> for_ranks;
};

/// All groups of the book.
[[nodiscard]] std::vector<GroupRows> group_rows(const TrailBook& book, const CompareOptions& options);

/// The first call that ranks of one group made differently, if there is one: operation, dtype, shape, root, reduction, order, one call too
/// many or too few. `number` receives its number.
[[nodiscard]] std::optional<Finding> find_clash(const TrailBook& book, const GroupRows& group, int64_t* number);

/// Pairs of ranks whose parts of an all_to_all do not fit, and sends without their receive.
[[nodiscard]] std::vector<Finding> find_pair_faults(const TrailBook& book, const GroupRows& group);

/// Who waits for whom: collectives that some have not entered, receives whose send was not made.
[[nodiscard]] std::vector<Wait> find_waits(const TrailBook& book, const GroupRows& group,
                                           const CompareOptions& options);

/// All of it: desync first; where there is none, who is missing, and what that rank does instead. Empty: the trails show no fault.
[[nodiscard]] std::vector<Finding> compare_trails(const TrailBook& book, const CompareOptions& options);

/// "nccl_trace_rank_3, record 17: all_reduce Float[4] #12 scheduled, called at train.py:41 in step".
[[nodiscard]] Evidence evidence_of(const TrailBook& book, int rank, const Call& call);

/// "rank 3", "ranks 0, 1, 2", "ranks 0 to 63".
[[nodiscard]] std::string rank_list(const std::vector<int>& ranks);

}  // namespace trireme::diagnose
