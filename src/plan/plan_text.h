// Plans in words, and how two of them differ.
#pragma once

#include <string>
#include <vector>

#include "plan/numbers.h"

namespace trireme::plan {

/// "none", "selective", "selective_op", "selective_layer", "full".
[[nodiscard]] const char* to_string(Recompute recompute);

/// "dp 8  tp 4  pp 4  micro-batch 1  interleaved x 5  recompute none  ZeRO 1"; degrees of 1 other than dp are left out.
[[nodiscard]] std::string describe(const Plan& plan);

/// What one must change of `from` to get `to`, a phrase each: "tp 4 instead of 2".
[[nodiscard]] std::vector<std::string> changes(const Plan& from, const Plan& to);

/// What of a plan Trireme's own runtime cannot run yet: "tp 4", "ZeRO 1". Empty: data-parallel replicas, which it runs.
[[nodiscard]] std::vector<std::string> not_runnable(const Plan& plan);

/// The parts of a step by name, in the order of TimeParts.
struct NamedSeconds {
  const char* name;
  double seconds;
};
[[nodiscard]] std::vector<NamedSeconds> named(const TimeParts& parts);

/// Why `slower` takes longer than `faster`: the parts that differ most, as "bubble +0.41 s, data-parallel gradients -0.10 s".
[[nodiscard]] std::string why_slower(const TimeParts& slower, const TimeParts& faster);

/// 1536 -> "1.5 KiB"; three digits.
[[nodiscard]] std::string bytes_text(double bytes);
/// "31.2 s", "412 ms".
[[nodiscard]] std::string seconds_text(double seconds);
/// 70553706496 -> "70.6 B" (1e9), "124 M".
[[nodiscard]] std::string count_text(double number);

}  // namespace trireme::plan
