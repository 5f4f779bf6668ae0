// Runs a function in a child whose system calls on files are counted, and strikes at one of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trireme::test {

struct Strike {
  int call = 0;          ///< before which call, from 1 on; 0: none
  int error_number = 0;  ///< the call is not carried out and gives this error; 0: SIGKILL
};

struct SteppedChild {
  std::vector<std::string> calls;  ///< "openat", "fsync", ... in order, the struck one last when it killed
  bool killed = false;
  int exit_code = -1;       ///< what `body` returned
  std::string unavailable;  ///< why such a child could not be had; the rest means nothing then
};

/// Opening, locking, allocating, writing, syncing, naming and removing count; memory, signals and the like do not.
[[nodiscard]] SteppedChild run_stepped(const std::function<int()>& body, const Strike& strike = {});

}  // namespace trireme::test
