// The CSV notation of torch.distributed.pipelining (class _Action of its schedules.py), and ours beside it.
#include <charconv>

#include "base/str.h"
#include "plan/schedule_text.h"
#include "trireme/base/error.h"
#include "trireme/plan/schedule.h"

namespace trireme::plan {
namespace {

struct Word {
  ActionKind kind;
  const char* text;
  bool torch;
};
// Longer words first where one begins another. "B" is no kind of its own.
constexpr Word kWords[] = {{ActionKind::kSendActivation, "SEND_F", true},
                           {ActionKind::kRecvActivation, "RECV_F", true},
                           {ActionKind::kSendGradient, "SEND_B", true},
                           {ActionKind::kRecvGradient, "RECV_B", true},
                           {ActionKind::kGatherParams, "UNSHARD", true},
                           {ActionKind::kReleaseParams, "RESHARD", true},
                           {ActionKind::kReduceGrads, "REDUCE_GRAD", true},
                           {ActionKind::kReduceTied, "REDUCE_TIED", false},
                           {ActionKind::kRecompute, "RECOMPUTE", false},
                           {ActionKind::kOffload, "OFFLOAD", false},
                           {ActionKind::kPrefetch, "PREFETCH", false},
                           {ActionKind::kOptimizerStep, "OPTIMIZER", false},
                           {ActionKind::kForward, "F", true},
                           {ActionKind::kBackwardInput, "I", true},
                           {ActionKind::kBackwardWeight, "W", true}};
constexpr std::string_view kOverlap = "OVERLAP_F_B";
constexpr std::string_view kBatch = "BATCH";

const Word& word_of(ActionKind kind) {
  for (const Word& word : kWords) {
    if (word.kind == kind) return word;
  }
  throw Error(ErrorKind::kInternal, str("[plan.schedule] action kind ", static_cast<int>(kind), " has no name"));
}

/// The other stage of a message along the chain, and its edge.
void set_chain_ends(Action& action) {
  const bool later = action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kRecvGradient;
  action.peer_stage = later ? action.stage + 1 : action.stage - 1;
  action.edge = later ? action.stage : action.stage - 1;
}

bool is_chain(const Action& action) {
  Action chain = action;
  set_chain_ends(chain);
  return chain == action;
}

/// Reads one line's cells into a rank's list.
class CellReader {
 public:
  CellReader(ScheduleFile& file, std::string where) : file_(file), where_(std::move(where)) {}

  void read(std::string_view cell, int number) {
    cell_ = cell;
    number_ = number;
    rest_ = trim(cell);
    if (rest_.empty()) return;
    if (rest_.front() == '(') {
      group();
    } else {
      action(-1);
      if (!rest_.empty()) refuse(str("'", rest_, "' is left over"));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::kConfig,
                str("[plan.read_schedule_csv] ", where_, ": cell ", number_ + 1, ", '", cell_, "': ", what,
                    "; an action is a stage, a kind and a micro-batch, such as 2F0 or 1SEND_F3."));
  }

  static std::string_view trim(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
  }

  bool take(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  bool take_number(int& value) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    constexpr int kMost = 1'000'000;
    if (error == std::errc::result_out_of_range || (error == std::errc{} && value > kMost))
      refuse("a number is too large");
    if (error != std::errc{} || value < 0) return false;
    rest_.remove_prefix(end - rest_.data());
    return true;
  }

  void group() {
    const size_t close = rest_.find(')');
    if (close == std::string_view::npos) refuse("')' is missing");
    const std::string_view kind = trim(rest_.substr(close + 1));
    if (kind != kOverlap && kind != kBatch) refuse(str("'", kind, "' is no kind of group; OVERLAP_F_B and BATCH are"));
    std::string_view inside = rest_.substr(1, close - 1);
    const int batch = next_batch_++;
    while (!inside.empty()) {
      const size_t semicolon = inside.find(';');
      rest_ = trim(inside.substr(0, semicolon));
      inside = semicolon == std::string_view::npos ? std::string_view{} : inside.substr(semicolon + 1);
      if (rest_.empty()) continue;
      action(batch);
      if (!rest_.empty()) refuse(str("'", rest_, "' is left over"));
    }
  }

  void action(int batch) {
    Action action;
    action.batch = batch;
    if (!take_number(action.stage)) refuse("a stage number must come first");
    std::vector<Action>& list = file_.schedule.back();
    if (rest_.substr(0, 1) == "B") {
      take("B");
      action.kind = ActionKind::kBackwardInput;
      if (!take_number(action.microbatch)) refuse("a micro-batch must follow");
      list.push_back(action);
      action.kind = ActionKind::kBackwardWeight;
      list.push_back(action);
      return;
    }
    const Word* found = nullptr;
    for (const Word& word : kWords) {
      if (take(word.text)) {
        found = &word;
        break;
      }
    }
    if (found == nullptr) refuse("unknown kind");
    action.kind = found->kind;
    if (has_microbatch(action.kind)) {
      if (!take_number(action.microbatch)) refuse("a micro-batch must follow");
    } else if (action.kind == ActionKind::kReduceTied) {
      if (!take_number(action.peer_stage)) refuse("the other stage must follow");
    }
    if (is_message(action.kind)) ends(action);
    if (action.kind == ActionKind::kBackwardInput) file_.splits_backward = true;
    list.push_back(action);
  }

  void ends(Action& action) {
    file_.has_communication = true;
    set_chain_ends(action);
    if (!take("#")) return;
    if (!take_number(action.edge) || !take(">") || !take_number(action.peer_stage)) {
      refuse("'#EDGE>STAGE' must follow");
    }
  }

  ScheduleFile& file_;
  std::string where_;
  std::string_view cell_, rest_;
  int number_ = 0;
  int next_batch_ = 0;
};

class CellWriter {
 public:
  CellWriter(const Schedule& schedule, bool torch_only) : schedule_(schedule), torch_only_(torch_only) {}

  std::string write() {
    for (rank_ = 0; rank_ < static_cast<int>(schedule_.size()); ++rank_) {
      const std::vector<Action>& list = schedule_[rank_];
      bool first = true;
      for (at_ = 0; at_ < list.size();) {
        if (!first) out_ += ',';
        first = false;
        if (list[at_].batch >= 0) {
          group(list);
        } else {
          single(list, list.size());
        }
      }
      out_ += "\r\n";  // as Python's csv module writes lines
    }
    return std::move(out_);
  }

 private:
  void single(const std::vector<Action>& list, size_t end) {
    const Action& action = list[at_];
    if (torch_only_ && (!word_of(action.kind).torch || (is_message(action.kind) && !is_chain(action)))) {
      refuse("torch.distributed.pipelining has no such action");
    }
    const bool whole = action.kind == ActionKind::kBackwardInput && at_ + 1 < end &&
                       list[at_ + 1].kind == ActionKind::kBackwardWeight && list[at_ + 1].stage == action.stage &&
                       list[at_ + 1].microbatch == action.microbatch && list[at_ + 1].batch == action.batch;
    out_ += whole ? str(action.stage, "B", action.microbatch) : action_text(action);
    at_ += whole ? 2 : 1;
  }

  void group(const std::vector<Action>& list) {
    size_t end = at_ + 1;
    while (end < list.size() && list[end].batch == list[at_].batch) ++end;
    const bool overlap = is_compute(list[at_].kind);
    if (torch_only_ && !overlap) refuse("torch.distributed.pipelining has no batches of messages");
    out_ += '(';
    while (at_ < end) {
      single(list, end);
      if (at_ < end) out_ += ';';
    }
    out_ += str(')', overlap ? kOverlap : kBatch);
  }

  [[noreturn]] void refuse(const char* what) const {
    throw Error(ErrorKind::kUnsupported,
                str("[plan.write_schedule_csv] ", position_text(schedule_, rank_, static_cast<int>(at_)), ": ", what,
                    ". Write without torch_only."));
  }

  const Schedule& schedule_;
  const bool torch_only_;
  int rank_ = 0;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string action_text(const Action& action) {
  std::string text = str(action.stage, word_of(action.kind).text);
  if (has_microbatch(action.kind)) text += str(action.microbatch);
  if (action.kind == ActionKind::kReduceTied) text += str(action.peer_stage);
  if (is_message(action.kind) && !is_chain(action)) text += str('#', action.edge, '>', action.peer_stage);
  return text;
}

std::string position_text(const Schedule& schedule, int rank, int position) {
  return str("rank ", rank, ", position ", position, ", ", action_text(schedule[rank][position]));
}

ScheduleFile read_schedule_csv(std::string_view text, std::string_view file) {
  ScheduleFile result;
  int line = 0;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    std::string_view row = text.substr(0, newline);
    text = newline == std::string_view::npos ? std::string_view{} : text.substr(newline + 1);
    ++line;
    result.schedule.emplace_back();
    CellReader reader(result, str(file, ':', line));
    for (int number = 0;; ++number) {
      const size_t comma = row.find(',');
      reader.read(row.substr(0, comma), number);
      if (comma == std::string_view::npos) break;
      row = row.substr(comma + 1);
    }
  }
  if (result.schedule.empty()) {
    throw Error(ErrorKind::kConfig, str("[plan.read_schedule_csv] ", file,
                                        ": the file is empty; one line of actions for each rank is required."));
  }
  return result;
}

std::string write_schedule_csv(const Schedule& schedule, bool torch_only) {
  return CellWriter(schedule, torch_only).write();
}

}  // namespace trireme::plan
