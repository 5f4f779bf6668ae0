#include "profile/profile_schedule.h"

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::profile {

void check_profile_schedule(const ProfileSchedule& schedule) {
  const auto require = [](const char* name, int64_t value, int64_t least) {
    if (value >= least) return;
    throw Error(ErrorKind::kInvalidArgument,
                str("[profile.profiler] schedule: ", name, " is ", value, "; it must be at least ", least, "."));
  };
  require("skip_first", schedule.skip_first, 0);
  require("wait", schedule.wait, 0);
  require("warmup", schedule.warmup, 0);
  require("active", schedule.active, 1);
  require("repeat", schedule.repeat, 0);
}

ProfileAction action_at(const ProfileSchedule& schedule, int64_t step) noexcept {
  if (step < schedule.skip_first) return ProfileAction::kNone;
  const int64_t length = schedule.wait + schedule.warmup + schedule.active;
  const int64_t at = step - schedule.skip_first;
  if (schedule.repeat > 0 && at / length >= schedule.repeat) return ProfileAction::kNone;
  const int64_t in_cycle = at % length;
  if (in_cycle < schedule.wait) return ProfileAction::kNone;
  if (in_cycle < schedule.wait + schedule.warmup) return ProfileAction::kWarmUp;
  return in_cycle < length - 1 ? ProfileAction::kRecord : ProfileAction::kRecordAndSave;
}

}  // namespace trireme::profile
