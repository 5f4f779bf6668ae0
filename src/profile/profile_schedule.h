// Which steps a profiler records: skip, then cycles of wait, warm-up and active steps. The rules of torch.profiler.schedule.
#pragma once

#include <cstdint>

#include "trireme/profile/profiler.h"

namespace trireme::profile {

enum class ProfileAction {
  kNone,
  kWarmUp,  ///< traced, and thrown away: the first traced step is slow
  kRecord,
  kRecordAndSave,  ///< the last active step of a cycle
};

/// Steps count from 0. Throws kInvalidArgument for negative numbers, and for cycles without an active step.
void check_profile_schedule(const ProfileSchedule& schedule);
[[nodiscard]] ProfileAction action_at(const ProfileSchedule& schedule, int64_t step) noexcept;

}  // namespace trireme::profile
