// The parts of `trireme plan`.
#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

/// The search itself: what `trireme plan` with flags does.
int cmd_plan_search(const std::vector<std::string>& args);
int cmd_plan_memory(const std::vector<std::string>& args);
int cmd_plan_score(const std::vector<std::string>& args);

}  // namespace trireme::cli
