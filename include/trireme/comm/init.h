// Joining the job that this process was started for.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "trireme/comm/group.h"

namespace trireme::comm {

struct InitOptions {
  /// Default "host": shared memory between processes of one host. Others are refused with the reason.
  std::string backend = "host";
  /// Limit of every call, and of the meeting itself; 1 ms to 365 days. Default 30 min; shorten it where a stuck job is expensive.
  std::chrono::milliseconds timeout{30 * 60 * 1000};
};

/// The world. [collective, blocking]
///
/// Reads who this process is from the environment that `trireme run`, torchrun, mpirun or srun left (docs/env.md); with
/// nothing there it is a world of one. Call it once, before other threads use LibTorch. Opens the collective trace
/// `<TRIREME_RUN_DIR>/trace/rank<r>.trace` (in memory when TRIREME_RUN_DIR is not set).
///
/// Errors   kInvalidArgument  the time-out is out of range.
///          kConfig        the environment is contradictory or half set.
///          kUnavailable   the backend is not in this build, or LibTorch is another minor version than at compile time.
///          kPeerLost      a rank died while the ranks met; has the launcher's line about it.
///          kTimeout       names the ranks that did not come, on every rank that did.
[[nodiscard]] Group init(const InitOptions& options = {});

/// Marks everything that is communicated from now on as part of this optimizer step, in error messages and in the
/// trace. [local, thread-safe; one store]
void set_step(uint32_t step) noexcept;

}  // namespace trireme::comm
