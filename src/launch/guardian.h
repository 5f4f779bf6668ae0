// The process between the launcher and the ranks. It starts the ranks, tells how they end, passes signals on, and ends
// every descendant: on command, when all ranks are done, or when the launcher is gone.
//
// It is forked from the launcher and never executes anything else, so its code keeps to system calls and plain memory.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::launch {

/// One rank, ready to be started.
struct RankStart {
  std::string executable;
  std::vector<std::string> command;
  std::vector<std::string> env;  ///< all of it, NAME=value
  int in_fd = -1;
  int out_fd = -1;
  int err_fd = -1;
};

/// From the guardian to the launcher; written in one piece, shorter than PIPE_BUF.
struct Notice {
  enum class Kind : int32_t {
    kStarted,     ///< rank, pid
    kCannotExec,  ///< rank, value = errno
    kEnded,       ///< rank, pid, value = exit code or signal, killed = which of the two
    kStray,       ///< pid, name: a process that the ranks left behind and that is being ended
    kAllGone,     ///< no descendant is left; the guardian ends
  };
  Kind kind = Kind::kAllGone;
  int32_t rank = -1;
  int32_t pid = 0;
  int32_t value = 0;
  int32_t killed = 0;
  int64_t monotonic_ns = 0;
  int64_t unix_ns = 0;
  char name[16] = {};
};

/// From the launcher to the guardian.
struct Order {
  enum class Kind : int32_t {
    kSignalRanks,  ///< value = signal, to the process groups of the ranks that live
    kKillAll,      ///< SIGKILL to every descendant until there is none
  };
  Kind kind = Kind::kKillAll;
  int32_t value = 0;
};

struct Guardian {
  pid_t pid = 0;
  int notices = -1;  ///< read Notice
  int orders = -1;   ///< write Order; closing it means kKillAll
};

/// How long a process that the ranks left behind has between SIGTERM and SIGKILL.
inline constexpr int kStrayGraceMs = 1000;

/// What the launcher has changed for itself and the ranks get back as it was.
struct Inherited {
  bool sigpipe_default = true;
  bool sigxfsz_default = true;
  rlimit num_files{};
};

/// Forks the guardian, which starts the ranks at once, in order. Throws kIo when a process or pipe cannot be had.
[[nodiscard]] Guardian start_guardian(const std::vector<RankStart>& ranks, const Inherited& inherited);

}  // namespace trireme::launch
