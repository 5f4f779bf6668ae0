// What a group is called and how patient it is; the same on all its ranks.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trireme::comm {

struct CommunicatorOptions {
  std::string group_name = "world";
  std::vector<int> global_ranks;  ///< of the members, for messages; empty: 0 .. n-1
  std::chrono::milliseconds timeout{30 * 60 * 1000};
};

}  // namespace trireme::comm
