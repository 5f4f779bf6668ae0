// Which calls of the ranks are one collective, and what the ranks' clocks differ by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/timeline.h"

namespace trireme::trace {

struct Member {
  uint32_t rank = 0;  ///< index into the timelines, not the rank's number
  uint32_t call = 0;  ///< index into its calls
};

/// One collective as at least two ranks saw it.
struct Match {
  std::string group;
  CollectiveOp op = CollectiveOp::kOther;
  std::vector<Member> members;
};

/// By group and sequence number where the files have numbers. Else by position: the files' sequences of operation and size are laid over each other
/// with the shift that fits best, and of equally good shifts, which training has one step apart, with the one that the step numbers ask for, or where
/// those are missing too, the one with the least difference in time. Sends and receives are not matched.
[[nodiscard]] std::vector<Match> match_calls(const std::vector<Timeline>& timelines);

/// How a rank's clock was brought to the first rank's: aligned = t - offset_ns - drift * (t - origin_ns).
struct ClockFit {
  bool aligned = false;  ///< false: no collective joins it to the others, and nothing says that the clock is the same
  bool same_clock = false;  ///< same host: nothing to correct
  double offset_ns = 0;
  double drift = 0;  ///< dimensionless, 1e-6 is one microsecond a second
  int64_t origin_ns = 0;
  int num_matches = 0;
  double residual_median_us = 0;  ///< what is left of the difference between the ends of one collective
  double residual_p95_us = 0;
};

/// Estimates offsets and drifts from the ends of collectives that no rank can leave before all have come: median and Theil-Sen slope, so that up to a
/// third of odd calls do no harm; the offset is kept within what causality allows (nobody ends before the last one began). Does not change the timelines.
[[nodiscard]] std::vector<ClockFit> fit_clocks(const std::vector<Timeline>& timelines,
                                               const std::vector<Match>& matches);

[[nodiscard]] int64_t aligned_time(const ClockFit& fit, int64_t time_ns);

/// The member that came last, of those whose clocks are aligned; null where these are fewer than two.
[[nodiscard]] const Member* last_to_come(const Match& match, const std::vector<Timeline>& timelines,
                                         const std::vector<ClockFit>& fits);

/// Brings all times of the timelines to the first one's clock.
void apply_clocks(const std::vector<ClockFit>& fits, std::vector<Timeline>& timelines);

/// "clocks: one host" or "rank 3: 1.204 ms behind, drift 12.1 ppm, residual 3.1 us (p95 9.9) over 240 collectives", one line for each that matters.
[[nodiscard]] std::vector<std::string> describe_clocks(const std::vector<Timeline>& timelines,
                                                       const std::vector<ClockFit>& fits);

}  // namespace trireme::trace
