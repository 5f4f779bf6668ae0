// The calls of each rank sorted into what ranks count alike: the collectives of a group, and the messages of one direction between two of
// its members. Private to profile.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profile/call_kinds.h"
#include "profile/collective_trace.h"

namespace trireme::profile {

/// A group as all its ranks know it: its index in the table differs from rank to rank.
struct GroupKey {
  std::string name;
  std::vector<int> ranks;
  int occurrence = 0;  ///< among groups of this name and these ranks, in the order in which they were made
  auto operator<=>(const GroupKey&) const = default;
};

/// Collectives: sender and receiver are -1. Messages: global ranks, and the two ends count apart.
struct LaneKey {
  GroupKey group;
  int sender = -1;
  int receiver = -1;
  bool receiving = false;
  [[nodiscard]] bool is_message() const { return sender >= 0; }
  auto operator<=>(const LaneKey&) const = default;
};

/// The records of one rank in one lane, in the order of their calls.
using Lane = std::vector<const TraceRecord*>;
using Lanes = std::map<LaneKey, Lane>;

/// Records point into `trace`. Those of groups that are not in its table are left out.
[[nodiscard]] Lanes sort_into_lanes(const TraceSnapshot& trace);

/// Records before the last call that has started have started too, or are gone.
[[nodiscard]] uint64_t last_entered(const Lane& lane);
[[nodiscard]] uint64_t last_finished(const Lane& lane);  ///< with success
[[nodiscard]] const TraceRecord* find_call(const Lane& lane, uint64_t call);

[[nodiscard]] inline bool is_in(const TraceRecord& record, CallState state) {
  return record.state == static_cast<uint32_t>(state);
}
[[nodiscard]] inline OpKind op_of(const TraceRecord& record) { return static_cast<OpKind>(record.op); }

}  // namespace trireme::profile
