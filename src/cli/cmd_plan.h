// The parts of `trireme plan`.
#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

int cmd_plan_score(const std::vector<std::string>& args);

}  // namespace trireme::cli
