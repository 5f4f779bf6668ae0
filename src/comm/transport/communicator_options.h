// What a group is called and how patient it is; the same on all its ranks.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace trireme::comm {

struct CommunicatorOptions {
  std::string group_name = "world";
  std::vector<int> global_ranks;  ///< of the members, for messages; empty: 0 .. n-1
  std::chrono::milliseconds timeout{30 * 60 * 1000};
  /// A rank that waits longer says so in its log, once for each wait, and who is late; 0: it does not. For ranks that no launcher watches.
  std::chrono::milliseconds hang_after{0};
};

/// Whether a member, by group rank, is still missing at this moment.
using IsMissing = std::function<bool(int)>;
/// Asked about 20 times a second while a group is being made; throws to end the wait. A group that is made out of another one asks that one
/// whether its members still live.
using MeetingWatch = std::function<void(const IsMissing&)>;

}  // namespace trireme::comm
