// How messages about schedules name an action.
#pragma once

#include <string>

#include "trireme/plan/schedule.h"

namespace trireme::plan {

/// "rank 2, position 17, 1SEND_F3".
[[nodiscard]] std::string position_text(const Schedule& schedule, int rank, int position);

}  // namespace trireme::plan
