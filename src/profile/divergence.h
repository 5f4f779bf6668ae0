// Where the ranks' calls part: the first call that is not the same on all, and which rank is the odd one out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profile/collective_trace.h"

namespace trireme::profile {

struct Divergence {
  struct Side {
    std::vector<int> ranks;  ///< global
    std::string what;        ///< the call as these ranks made it
    uint32_t step = 0;
  };
  enum class ToldBy {
    kNothing,   ///< the sides are equally strong
    kOwnPast,   ///< the odd ranks did otherwise in their own step before, the others did not
    kMajority,  ///< most ranks are on the other side
  };
  std::string group;
  uint64_t call = 0;
  std::vector<Side> sides;  ///< the largest first
  std::vector<int> odd;     ///< ranks that are out of step; empty where nothing tells
  ToldBy told_by = ToldBy::kNothing;
  std::string difference;  ///< "the shapes differ"
  std::string past;        ///< what the first odd rank did at this place one step before; may be empty

  /// "rank 2 is out of step in call 18 of group 'world': it called ... in step 6, ranks 0, 1, 3 called ...; the shapes differ."
  [[nodiscard]] std::string words() const;
};

/// The earliest difference that the traces still hold; nothing when they agree as far as they reach. Steps (comm::set_step) are compared
/// where they agreed before.
[[nodiscard]] std::optional<Divergence> find_divergence(const std::vector<TraceSnapshot>& traces);

}  // namespace trireme::profile
