// The flags that say what is to be trained on what: shared by the parts of `trireme plan` and by `trireme simulate`.
#pragma once

#include <string>
#include <vector>

#include "trireme/plan/plan.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of another library
class App;
}

namespace trireme::cli {

struct PlanFlags {
  std::string model, cluster, software = "default", precision = "bf16", like;
  int64_t global_batch = 0, sequence = 0;
};
void add_plan_flags(CLI::App& app, PlanFlags& flags);

struct PlanInputs {
  plan::ModelDesc model;
  plan::Machine machine;
  plan::Training training;
  int64_t devices = 1;
  /// Where hosts are of several kinds: each kind with its number of devices. Empty where all are alike, however many groups describe them.
  struct Kind {
    plan::Machine machine;
    int64_t devices = 0;
  };
  std::vector<Kind> kinds = {};
};
/// Reads the files that the flags name. kConfig or kUnsupported with flag or file, and what to do; `unlike_hosts` says that hosts of several
/// kinds are no fault.
[[nodiscard]] PlanInputs read_plan_inputs(const PlanFlags& flags, bool unlike_hosts = false);

/// "llama-3-70b (70.6 B parameters, 80 layers) on 16 x 8 x H100, ..."
[[nodiscard]] std::string describe(const PlanInputs& inputs);

}  // namespace trireme::cli
