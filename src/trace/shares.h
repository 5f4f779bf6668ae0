// Where the time of a step goes: every moment of it belongs to exactly one share.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/match.h"
#include "trace/timeline.h"

namespace trireme::trace {

enum class Share : uint8_t {
  kCompute,    ///< something computes, whether or not something communicates beside it
  kExposed,    ///< only communication: what computation does not hide
  kImbalance,  ///< the part of that in which a collective waits for a rank that has not come yet
  kCopy,       ///< only copies to, from and within a GPU
  kDataWait,   ///< nothing of these, and the program waits for its data loader
  kGap,        ///< nothing of these: a GPU between two kernels, a CPU in code that is not traced
};
inline constexpr int kNumShares = 6;

struct StepShares {
  int64_t number = -1;
  int64_t total_ns = 0;
  int64_t share_ns[kNumShares] = {};  ///< sum to total_ns
  int64_t overlapped_ns = 0;          ///< communication beside computation, a part of kCompute
  std::vector<int64_t> waits_ns;      ///< kImbalance by whom was waited for, an index into the timelines
  double flops = 0;
};

/// A stretch in which nothing changes; gaps are left out.
struct Segment {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  Share share = Share::kGap;
  bool overlapped = false;
  int32_t awaited = -1;  ///< of kImbalance
};

/// Waiting inside a collective for the rank that came last.
struct Wait {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int32_t awaited = 0;
};

/// For each timeline, from matched calls whose clocks are aligned. Waits shorter than what the clocks are uncertain by are left out.
[[nodiscard]] std::vector<std::vector<Wait>> waits_of(const std::vector<Timeline>& timelines,
                                                      const std::vector<Match>& matches,
                                                      const std::vector<ClockFit>& fits);

/// One sweep over the sorted ends of spans. A CPU thread is in a data wait or a collective as long as any such span is open on it, whatever
/// operators that calls; a GPU's streams and the threads then count together.
[[nodiscard]] std::vector<Segment> segments_of(const Timeline& timeline, const std::vector<Wait>& waits);

[[nodiscard]] std::vector<StepShares> shares_of(const Timeline& timeline, const std::vector<Segment>& segments,
                                                size_t num_timelines);

}  // namespace trireme::trace
