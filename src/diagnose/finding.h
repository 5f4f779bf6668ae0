// What a check or a reader has found wrong, in the one form that `trireme doctor` and `trireme diagnose` print.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::diagnose {

/// Only kError makes a command end with 3 (docs/errors.md).
enum class Severity { kInfo, kWarning, kError };

/// "info", "warning", "error".
[[nodiscard]] const char* to_string(Severity severity) noexcept;

/// A line that shows it. `file` may also be a place that is no file: "/sys/class/infiniband/mlx5_0", "nvidia-smi topo -m".
struct Evidence {
  std::string file{};
  int64_t line = 0;    ///< from 1; 0: the whole file
  std::string text{};  ///< as it stood there; the printers make it fit for a terminal
};

struct Finding {
  std::string code{};  ///< what a program may compare: "ports.down", "nccl.duplicate_gpu"
  std::string
      cause{};  ///< one sentence, with the values: "GPU 0000:9b:00: the GSP processor stopped answering (Xid 119), 3 times"
  Severity severity = Severity::kWarning;
  double confidence = 1;  ///< 0 to 1: how sure it is that this is so and matters. 1: it stands there in so many words
  std::vector<int> ranks{};  ///< the ranks it is about; empty: not about ranks, or not known
  std::string advice{};      ///< what it means and what to do, with the exact command
  std::vector<Evidence> evidence{};
  std::string host{};  ///< empty: this one, or not known
};

/// Adds evidence while there is room, each line once: a file may say the same a million times. The text is cut to 400 bytes.
void add_evidence(Finding& finding, Evidence evidence);
inline constexpr size_t kMaxEvidence = 12;

/// One row of doctor's table: what was looked at and how it is.
struct Check {
  enum class State { kOk, kWarning, kError, kUnknown };
  std::string name{};  ///< "shared memory"
  State state = State::kOk;
  std::string text{};  ///< "/dev/shm: 16 GiB, 15.9 GiB free"
  std::string host{};
};

/// "ok", "warning", "error", "unknown".
[[nodiscard]] const char* to_string(Check::State state) noexcept;

}  // namespace trireme::diagnose
