#include "profile/group_meeting.h"

#include <algorithm>
#include <string_view>

#include "profile/call_kinds.h"

namespace trireme::profile {

GroupMeeting::GroupMeeting(CollectiveTrace* trace, uint16_t group) noexcept : trace_(trace) {
  if (trace_ == nullptr) return;
  TraceRecord record;
  record.call = kMeetingCall;
  record.op = static_cast<uint8_t>(OpKind::kBarrier);
  record.dtype = static_cast<uint8_t>(DType::kU8);
  record.group = group;
  constexpr std::string_view kLabel = "making the group";
  std::copy(kLabel.begin(), kLabel.end(), record.label);
  token_ = trace_->queued(record);
  trace_->started(token_);
}

GroupMeeting::~GroupMeeting() {
  if (trace_ != nullptr) trace_->finished(token_, ok_);
}

}  // namespace trireme::profile
