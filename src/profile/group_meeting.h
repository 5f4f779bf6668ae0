// Shows in the collective trace that this rank waits for the other members of a group that is being made.
#pragma once

#include <cstdint>

#include "profile/collective_trace.h"

namespace trireme::profile {

/// TraceRecord::call of the meeting of a group's members, before its first call.
inline constexpr uint64_t kMeetingCall = 0;

/// Purpose       While it lives, call 0 of the group, a barrier, is under way on this rank; so whoever looks for hangs sees who is late.
/// Thread safety Of one thread.
class GroupMeeting {
 public:
  /// `trace` may be null. `group` as register_group() gave it.
  GroupMeeting(CollectiveTrace* trace, uint16_t group) noexcept;
  ~GroupMeeting();
  GroupMeeting(const GroupMeeting&) = delete;
  GroupMeeting& operator=(const GroupMeeting&) = delete;

  /// All have come. Without it the destructor records a call that failed.
  void done() noexcept { ok_ = true; }

 private:
  CollectiveTrace* trace_;
  uint64_t token_ = 0;
  bool ok_ = false;
};

}  // namespace trireme::profile
