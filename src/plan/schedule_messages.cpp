// check_schedule(), between ranks: every message has both ends, two ranks name their messages in one order, and no circle of ranks waits.
//
// Execution with zero-size buffers: a rank stands at one batch of messages (or one message) until each of them has met its other end,
// which stands at its own rank's batch. What a rank waits for never depends on who came first, so the order in which ranks are tried does
// not matter: either all lists end, or the same ranks stand still for ever, and then they wait for each other in a circle.
#include <algorithm>
#include <deque>
#include <map>

#include "base/str.h"
#include "plan/schedule_check.h"
#include "plan/schedule_text.h"

namespace trireme::plan {
namespace {

class MessageCheck {
 public:
  MessageCheck(const Schedule& schedule, const ScheduleShape& shape)
      : schedule_(schedule), shape_(shape), ends_(shape.num_messages()), ranks_(schedule.size()) {}

  std::optional<std::string> run(ScheduleStats& stats) {
    collect();
    if (auto fault = both_ends()) return fault;
    stats.messages = num_messages_;
    if (auto fault = same_order()) return fault;
    return no_circle();
  }

 private:
  struct Ends {
    Place send, recv;
  };
  struct RankState {
    size_t position = 0;  ///< begin of the batch at which the rank stands
    int waiting = 0;      ///< its messages that have not met their other ends
  };

  [[nodiscard]] const Action& at(Place place) const { return schedule_[place.rank][place.position]; }
  [[nodiscard]] bool between_ranks(const Action& action) const {
    return is_message(action.kind) || (action.kind == ActionKind::kReduceTied &&
                                       shape_.rank_of_stage[action.stage] != shape_.rank_of_stage[action.peer_stage]);
  }

  void collect() {
    for (int rank = 0; rank < static_cast<int>(schedule_.size()); ++rank) {
      for (int i = 0; i < static_cast<int>(schedule_[rank].size()); ++i) {
        const Action& action = schedule_[rank][i];
        if (is_message(action.kind)) {
          Ends& ends = ends_[shape_.message(action)];
          (is_send(action.kind) ? ends.send : ends.recv) = {rank, i};
        } else if (between_ranks(action)) {
          tied_[{action.stage, action.peer_stage}] = {rank, i};
        }
      }
    }
  }

  std::optional<std::string> both_ends() {
    for (const Ends& ends : ends_) {
      num_messages_ += ends.send.found() ? 1 : 0;
      if (ends.send.found() == ends.recv.found()) continue;
      const Place place = ends.send.found() ? ends.send : ends.recv;
      const Action& action = at(place);
      const ActionKind other_kind = action.kind == ActionKind::kSendActivation   ? ActionKind::kRecvActivation
                                    : action.kind == ActionKind::kRecvActivation ? ActionKind::kSendActivation
                                    : action.kind == ActionKind::kSendGradient   ? ActionKind::kRecvGradient
                                                                                 : ActionKind::kSendGradient;
      const Action other{other_kind, action.peer_stage, action.microbatch, action.edge, action.stage};
      return fault_text(schedule_, place,
                        str("rank ", shape_.rank_of_stage[action.peer_stage], " has no ", action_text(other),
                            "; every send needs its receive."));
    }
    for (const auto& [stages, place] : tied_) {
      if (tied_.count({stages.second, stages.first}) != 0) continue;
      return fault_text(schedule_, place,
                        str("rank ", shape_.rank_of_stage[stages.second],
                            " does not take part; it needs the same for stage ", stages.second, "."));
    }
    return std::nullopt;
  }

  /// Transports without tags pair the i-th send from a to b with the i-th receive of b from a.
  std::optional<std::string> same_order() {
    std::map<std::pair<int, int>, std::pair<std::vector<Place>, std::vector<Place>>> lanes;
    for (int rank = 0; rank < static_cast<int>(schedule_.size()); ++rank) {
      for (int i = 0; i < static_cast<int>(schedule_[rank].size()); ++i) {
        const Action& action = schedule_[rank][i];
        if (!is_message(action.kind)) continue;
        const int peer = shape_.rank_of_stage[action.peer_stage];
        if (is_send(action.kind)) {
          lanes[{rank, peer}].first.push_back({rank, i});
        } else {
          lanes[{peer, rank}].second.push_back({rank, i});
        }
      }
    }
    for (const auto& [ranks, lane] : lanes) {
      for (size_t i = 0; i < lane.first.size(); ++i) {
        if (shape_.message(at(lane.first[i])) == shape_.message(at(lane.second[i]))) continue;
        return fault_text(schedule_, lane.first[i],
                          str("it is number ", i, " of what goes to rank ", ranks.second, ", which receives as number ",
                              i, " ", action_text(at(lane.second[i])), " at position ", lane.second[i].position,
                              "; both ranks must name them in one order."));
      }
    }
    return std::nullopt;
  }

  /// Where the other end of a message is.
  [[nodiscard]] Place other_end(const Action& action) const {
    if (!is_message(action.kind)) return tied_.at({action.peer_stage, action.stage});
    const Ends& ends = ends_[shape_.message(action)];
    return is_send(action.kind) ? ends.recv : ends.send;
  }

  /// Whether a rank stands at the batch of this place.
  [[nodiscard]] bool stands_at(Place place) const {
    const RankState& state = ranks_[place.rank];
    return state.waiting > 0 && static_cast<size_t>(place.position) >= state.position &&
           static_cast<size_t>(place.position) < batch_end(schedule_[place.rank], state.position);
  }

  /// Moves a rank to its next batch with messages, and lets those meet whose other ends wait already.
  void advance(int rank, std::deque<int>& runnable) {
    RankState& state = ranks_[rank];
    const std::vector<Action>& list = schedule_[rank];
    while (state.position < list.size() && !between_ranks(list[state.position])) ++state.position;
    if (state.position == list.size()) return;
    const size_t end = batch_end(list, state.position);
    state.waiting = static_cast<int>(end - state.position);
    for (size_t i = state.position; i < end; ++i) {
      const Place other = other_end(list[i]);
      if (!stands_at(other)) continue;
      --state.waiting;
      if (--ranks_[other.rank].waiting == 0) leave(other.rank, runnable);
    }
    if (state.waiting == 0) leave(rank, runnable);
  }

  void leave(int rank, std::deque<int>& runnable) {
    ranks_[rank].position = batch_end(schedule_[rank], ranks_[rank].position);
    runnable.push_back(rank);
  }

  std::optional<std::string> no_circle() {
    std::deque<int> runnable;
    for (int rank = 0; rank < static_cast<int>(schedule_.size()); ++rank) runnable.push_back(rank);
    while (!runnable.empty()) {
      const int rank = runnable.front();
      runnable.pop_front();
      advance(rank, runnable);
    }
    for (int rank = 0; rank < static_cast<int>(schedule_.size()); ++rank) {
      if (ranks_[rank].waiting > 0) return circle_text(rank);
    }
    return std::nullopt;
  }

  /// The first message of a standing rank's batch that has not met its other end: that one lies further down its rank's list.
  [[nodiscard]] Place waits_for(int rank) const {
    const size_t end = batch_end(schedule_[rank], ranks_[rank].position);
    size_t i = ranks_[rank].position;
    for (; i + 1 < end; ++i) {
      const Place other = other_end(schedule_[rank][i]);
      if (static_cast<size_t>(other.position) >= batch_end(schedule_[other.rank], ranks_[other.rank].position)) break;
    }
    return {rank, static_cast<int>(i)};
  }

  std::string circle_text(int rank) const {
    std::vector<int> path;
    while (std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      rank = other_end(at(waits_for(rank))).rank;
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
    std::string text;
    constexpr size_t kShown = 4;
    for (size_t i = 0; i < path.size() && i < kShown; ++i) {
      const Place place = waits_for(path[i]);
      const Place other = other_end(at(place));
      text += str(i == 0 ? "" : "; ", position_text(schedule_, place.rank, place.position), " waits for position ",
                  other.position, " of rank ", other.rank);
    }
    if (path.size() > kShown) text += str(" and so on over ", path.size(), " ranks");
    return str("[plan.check_schedule] ", text,
               ": a circle, which stops when messages are not buffered. Let one of them receive first, or start both "
               "messages of a rank together (one batch).");
  }

  const Schedule& schedule_;
  const ScheduleShape& shape_;
  std::vector<Ends> ends_;
  std::map<std::pair<int, int>, Place> tied_;  // (stage, other stage)
  std::vector<RankState> ranks_;
  int64_t num_messages_ = 0;
};

}  // namespace

std::optional<std::string> check_messages(const Schedule& schedule, const ScheduleShape& shape, ScheduleStats& stats) {
  return MessageCheck(schedule, shape).run(stats);
}

}  // namespace trireme::plan
