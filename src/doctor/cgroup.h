// Limits of the control group that this process is in, versions 1 and 2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "doctor/place.h"

namespace trireme::doctor {

struct CgroupLimits {
  std::optional<int64_t> memory_bytes;       ///< the least of the group's own and those above; nullopt: none
  std::optional<int64_t> memory_used_bytes;  ///< of the group that has that limit
  std::optional<double> cpus;                ///< quota / period: 1.5 of the machine's CPUs; nullopt: none
  std::optional<int64_t> throttled;          ///< periods in which the quota was used up
  std::optional<int64_t> pids;
  std::string memory_file;  ///< where the limit stands
  std::string cpu_file;
};

[[nodiscard]] CgroupLimits read_cgroup_limits(const Place& place);

}  // namespace trireme::doctor
