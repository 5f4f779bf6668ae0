// What the parts of check_schedule() hand to each other: first each rank's list by itself, then the messages between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/plan/schedule.h"

namespace trireme::plan {

/// Where an action stands.
struct Place {
  int rank = -1;
  int position = -1;
  [[nodiscard]] bool found() const { return rank >= 0; }
};

/// What a schedule is checked against, with the defaults filled in.
struct ScheduleShape {
  int stages = 0;
  int microbatches = 0;
  bool forward_only = false;
  std::vector<StageEdge> edges;
  std::vector<int> rank_of_stage;
  std::vector<std::vector<int>> out, in;  ///< by stage: edges that begin and end there

  [[nodiscard]] size_t cell(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * microbatches + microbatch;
  }
  /// Number of a message, of 2 * edges * microbatches; both ends have the same.
  [[nodiscard]] size_t message(const Action& action) const {
    const bool gradient = action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kRecvGradient;
    return (static_cast<size_t>(action.edge) * 2 + (gradient ? 1 : 0)) * microbatches + action.microbatch;
  }
  [[nodiscard]] size_t num_messages() const { return edges.size() * 2 * microbatches; }
};

/// By ScheduleShape::message(): whether a list before had that end of it. Each end is on one rank.
struct MessageFlags {
  std::vector<uint8_t> sent, received;
};

/// "[plan.check_schedule] rank 2, position 17, 1SEND_F3: what"
[[nodiscard]] std::string fault_text(const Schedule& schedule, Place place, const std::string& what);

/// One past the last action that starts together with the one at `position`.
[[nodiscard]] size_t batch_end(const std::vector<Action>& list, size_t position);

/// The first fault in where stages are and what actions say, or nothing; fills in the shape.
[[nodiscard]] std::optional<std::string> find_shape(const Schedule& schedule, const ScheduleRules& rules,
                                                    ScheduleShape& shape);

/// The first fault of one rank's own order, of counts and of memory; fills in the peaks.
[[nodiscard]] std::optional<std::string> check_rank(const Schedule& schedule, int rank, const ScheduleRules& rules,
                                                    const ScheduleShape& shape, MessageFlags& flags,
                                                    ScheduleStats& stats);

/// The first message without its other end, in another order there, or in a circle of waiting ranks; counts messages.
[[nodiscard]] std::optional<std::string> check_messages(const Schedule& schedule, const ScheduleShape& shape,
                                                        ScheduleStats& stats);

}  // namespace trireme::plan
