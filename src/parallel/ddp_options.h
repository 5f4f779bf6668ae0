// Checks of DdpOptions.
#pragma once

#include <cstdint>

namespace trireme::parallel {

struct DdpOptions;

inline constexpr int64_t kMaxBucketBytes = int64_t{1} << 40;

/// Throws kInvalidArgument naming the option, its value and the range.
void check_ddp_options(const DdpOptions& options);

}  // namespace trireme::parallel
