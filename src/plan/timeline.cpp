// A simulated step to look at: characters for a terminal, SVG for a browser, events for a trace viewer.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/json.h"
#include "base/str.h"
#include "trireme/plan/simulate.h"

namespace trireme::plan {
namespace {

/// "12.3 ms" and the like, three digits.
std::string time_text(double seconds) {
  if (seconds == 0) return "0";
  std::array<char, 32> text{};
  const auto [scale, unit] = seconds >= 1      ? std::pair(1.0, "s")
                             : seconds >= 1e-3 ? std::pair(1e3, "ms")
                                               : std::pair(1e6, "us");
  std::snprintf(text.data(), text.size(), "%.3g %s", seconds * scale, unit);
  return text.data();
}

std::string bytes_text(double bytes) {
  std::array<char, 32> text{};
  const auto [scale, unit] = bytes >= 1e9   ? std::pair(1e-9, "GB")
                             : bytes >= 1e6 ? std::pair(1e-6, "MB")
                             : bytes >= 1e3 ? std::pair(1e-3, "kB")
                                            : std::pair(1.0, "B");
  std::snprintf(text.data(), text.size(), "%.3g %s", bytes * scale, unit);
  return text.data();
}

std::string fixed(double value, int digits) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

char letter(const Action& action) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  switch (action.kind) {
    case ActionKind::kForward:
      return kDigits[action.microbatch % kDigits.size()];
    case ActionKind::kBackwardInput:
      return '=';
    case ActionKind::kBackwardWeight:
      return '-';
    case ActionKind::kRecompute:
      return '~';
    default:
      return '*';  // the optimizer step
  }
}

const char* colour(const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward:
      return "#4c8bd8";
    case ActionKind::kBackwardInput:
      return "#2f9e63";
    case ActionKind::kBackwardWeight:
      return "#8fcf9f";
    case ActionKind::kRecompute:
      return "#c9a227";
    case ActionKind::kOptimizerStep:
      return "#8757b8";
    default:
      return "#d9534f";  // collectives and copies
  }
}

/// Bytes on a rank over time, from its stages.
std::vector<MemoryPoint> rank_memory(const SimulatedStep& step, int rank) {
  std::vector<MemoryPoint> changes;
  for (size_t stage = 0; stage < step.memory.size(); ++stage) {
    if (step.rank_of_stage[stage] != rank) continue;
    double before = 0;
    for (const MemoryPoint& point : step.memory[stage]) {
      changes.push_back({point.at_s, point.bytes - before});
      before = point.bytes;
    }
  }
  std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
  std::vector<MemoryPoint> sum;
  double bytes = 0;
  for (const MemoryPoint& change : changes) {
    bytes += change.bytes;
    if (!sum.empty() && sum.back().at_s == change.at_s) {
      sum.back().bytes = bytes;
    } else {
      sum.push_back({change.at_s, bytes});
    }
  }
  return sum;
}

/// Ranks to show when there are more than fit: the first, the last, and every so manyth between.
std::vector<int> shown_ranks(int ranks, int most) {
  std::vector<int> shown;
  if (ranks <= most) {
    for (int rank = 0; rank < ranks; ++rank) shown.push_back(rank);
    return shown;
  }
  for (int i = 0; i < most; ++i) shown.push_back(static_cast<int>(int64_t{i} * (ranks - 1) / (most - 1)));
  return shown;
}

class Svg {
 public:
  Svg(const Schedule& schedule, const SimulatedStep& step) : schedule_(schedule), step_(step) {
    shown_ = shown_ranks(static_cast<int>(schedule.size()), kMostRanks);
    scale_ = step.step_s > 0 ? kWidth / step.step_s : 0;
    for (const double bytes : step.rank_peak_bytes) most_bytes_ = std::max(most_bytes_, bytes);
    int64_t messages = 0;
    for (const int rank : shown_) {
      const std::vector<Action>& list = schedule[rank];
      messages += std::count_if(list.begin(), list.end(), [](const Action& action) { return is_send(action.kind); });
    }
    constexpr int64_t kMostMessages = 2000;  // more lines hide the rest
    draws_messages_ = messages <= kMostMessages;
  }

  std::string draw(const std::string& title) {
    const double height = kTop + static_cast<double>(shown_.size()) * (kRow + kMemory + kGap) + kBottom;
    out_ = str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", fixed(kLeft + kWidth + kRight, 0), "\" height=\"",
               fixed(height, 0), "\" font-family=\"sans-serif\" font-size=\"11\">\n",
               "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"", fixed(kLeft, 0),
               "\" y=\"20\" font-size=\"", fixed(title_size(title), 1), "\">", escape(title), "</text>\n");
    legend();
    axis(height - kBottom);
    for (size_t row = 0; row < shown_.size(); ++row) draw_rank(row);
    draw_messages();
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  static constexpr double kLeft = 70, kWidth = 1200, kRight = 90, kTop = 64, kBottom = 24;
  static constexpr double kRow = 20, kMemory = 22, kGap = 10;
  static constexpr int kMostRanks = 32;
  static constexpr double kThinnest = 0.4;  ///< pixels: narrower actions of one kind are drawn as one

  /// So that a long title ends where the drawing does: letters are about 0.55 of their size wide.
  static double title_size(const std::string& title) {
    return std::min(15.0, (kWidth + kRight) / (0.55 * static_cast<double>(std::max<size_t>(title.size(), 1))));
  }
  [[nodiscard]] double x(double seconds) const { return kLeft + seconds * scale_; }
  [[nodiscard]] static double y(size_t row) { return kTop + static_cast<double>(row) * (kRow + kMemory + kGap); }

  static std::string escape(const std::string& text) {
    std::string result;
    for (const char c : text) {
      if (c == '<') {
        result += "&lt;";
      } else if (c == '&') {
        result += "&amp;";
      } else {
        result += c;
      }
    }
    return result;
  }

  void rect(double left, double top, double width, double height, const char* fill) {
    out_ += str("<rect x=\"", fixed(left, 2), "\" y=\"", fixed(top, 1), "\" width=\"", fixed(width, 2), "\" height=\"",
                fixed(height, 1), "\" fill=\"", fill, "\"/>\n");
  }
  void text(double left, double top, const char* attributes, const std::string& what) {
    out_ +=
        str("<text x=\"", fixed(left, 1), "\" y=\"", fixed(top, 1), "\" ", attributes, ">", escape(what), "</text>\n");
  }

  void legend() {
    double left = kLeft;
    const std::pair<ActionKind, const char*> kinds[] = {{ActionKind::kForward, "forward"},
                                                        {ActionKind::kBackwardInput, "backward, input"},
                                                        {ActionKind::kBackwardWeight, "backward, weights"},
                                                        {ActionKind::kRecompute, "recompute"},
                                                        {ActionKind::kOptimizerStep, "optimizer"},
                                                        {ActionKind::kReduceGrads, "collective, copy"}};
    for (const auto& [kind, name] : kinds) {
      Action action;
      action.kind = kind;
      rect(left, 30, 12, 12, colour(action));
      text(left + 16, 40, "fill=\"#333\"", name);
      left += 30 + 6.2 * static_cast<double>(std::string_view(name).size());
    }
    text(left, 40, "fill=\"#333\"",
         str(draws_messages_ ? "thin lines: messages; " : "", "below each rank: its memory, top line ",
             bytes_text(most_bytes_)));
  }

  void axis(double bottom) {
    if (step_.step_s <= 0) return;
    const double rough = step_.step_s / 10;
    const double decade = std::pow(10, std::floor(std::log10(rough)));
    double tick = decade;
    for (const double factor : {2.0, 5.0, 10.0}) {
      if (decade * factor <= rough * 1.5)
        tick = decade * factor;  // at most 10 of them, so that their times do not meet
    }
    for (int i = 0; i * tick <= step_.step_s * 1.0001; ++i) {
      const double at = i * tick;
      out_ += str("<line x1=\"", fixed(x(at), 1), "\" x2=\"", fixed(x(at), 1), "\" y1=\"", fixed(kTop - 6, 0),
                  "\" y2=\"", fixed(bottom, 0), "\" stroke=\"#e4e4e4\"/>\n");
      text(x(at), bottom + 14, "fill=\"#666\" text-anchor=\"middle\"", time_text(at));
    }
  }

  void draw_rank(size_t row) {
    const int rank = shown_[row];
    const double top = y(row);
    text(8, top + 14, "fill=\"#333\"", str("rank ", rank));
    text(kLeft + kWidth + 6, top + 14, "fill=\"#333\"",
         str(fixed(100 * step_.ranks[rank].compute_s / std::max(step_.step_s, 1e-300), 0), " % busy"));
    rect(kLeft, top, kWidth, kRow, "#f3f3f3");
    const std::vector<Action>& list = schedule_[rank];
    for (size_t i = 0; i < list.size(); ++i) {
      const SimulatedAction& when = step_.actions[rank][i];
      if (when.lane == Lane::kMessage || when.end_s <= when.start_s) continue;
      double end = when.end_s;
      const bool aside = when.lane != Lane::kCompute;
      size_t last = i;
      while (!aside && (end - when.start_s) * scale_ < kThinnest && last + 1 < list.size() &&
             list[last + 1].kind == list[i].kind && step_.actions[rank][last + 1].start_s == end) {
        end = step_.actions[rank][++last].end_s;
      }
      const double width = (end - when.start_s) * scale_;
      rect(x(when.start_s), aside ? top + kRow - 4 : top, std::max(width - (width > 3 ? 0.6 : 0), 0.2),
           aside ? 4 : kRow, colour(list[i]));
      if (!aside && last == i && width > 12 && is_compute(list[i].kind)) {
        text(x(when.start_s) + width / 2, top + 14, "fill=\"white\" text-anchor=\"middle\" font-size=\"10\"",
             str(list[i].microbatch));
      }
      i = last;
    }
    draw_memory(rank, top + kRow + 2);
  }

  void draw_memory(int rank, double top) {
    if (most_bytes_ <= 0) return;
    const auto height = [&](double bytes) { return top + kMemory - bytes / most_bytes_ * kMemory; };
    std::string points = str(fixed(kLeft, 1), ",", fixed(top + kMemory, 1));
    double before = 0;
    double last_x = -1;
    for (const MemoryPoint& point : rank_memory(step_, rank)) {
      const double at = x(point.at_s);
      // Finer than a third of a pixel cannot be seen.
      if (at - last_x < 0.33 && point.bytes <= before) continue;
      points +=
          str(" ", fixed(at, 1), ",", fixed(height(before), 1), " ", fixed(at, 1), ",", fixed(height(point.bytes), 1));
      before = point.bytes;
      last_x = at;
    }
    points += str(" ", fixed(kLeft + kWidth, 1), ",", fixed(height(before), 1), " ", fixed(kLeft + kWidth, 1), ",",
                  fixed(top + kMemory, 1));
    out_ += str("<polygon points=\"", points, "\" fill=\"#d8d3e8\" stroke=\"#8a7fb0\" stroke-width=\"0.6\"/>\n");
    text(kLeft + kWidth + 6, top + kMemory - 6, "fill=\"#6a5f90\"", bytes_text(step_.rank_peak_bytes[rank]));
  }

  void draw_messages() {
    std::vector<int> row_of(schedule_.size(), -1);
    for (size_t row = 0; row < shown_.size(); ++row) row_of[shown_[row]] = static_cast<int>(row);
    if (!draws_messages_) return;
    for (const int rank : shown_) {
      for (size_t i = 0; i < schedule_[rank].size(); ++i) {
        const Action& action = schedule_[rank][i];
        if (!is_send(action.kind)) continue;
        const int row = row_of[rank];
        const int other = row_of[step_.rank_of_stage[action.peer_stage]];
        if (other < 0) continue;
        const SimulatedAction& when = step_.actions[rank][i];
        const double from = other > row ? y(row) + kRow : y(row);
        const double to = other > row ? y(other) : y(other) + kRow;
        out_ += str("<line x1=\"", fixed(x(when.start_s), 1), "\" y1=\"", fixed(from, 1), "\" x2=\"",
                    fixed(x(when.end_s), 1), "\" y2=\"", fixed(to, 1), "\" stroke=\"",
                    action.kind == ActionKind::kSendActivation ? "#4c8bd8" : "#2f9e63",
                    "\" stroke-width=\"0.6\" opacity=\"0.6\"/>\n");
      }
    }
  }

  const Schedule& schedule_;
  const SimulatedStep& step_;
  std::vector<int> shown_;
  double scale_ = 0;
  double most_bytes_ = 0;
  bool draws_messages_ = true;
  std::string out_;
};

}  // namespace

std::string timeline_text(const Schedule& schedule, const SimulatedStep& step, int width) {
  constexpr int kMostRanks = 40;
  constexpr int kBefore = 10;
  const int columns = std::max(width - kBefore - 18, 10);
  std::string out;
  for (const int rank : shown_ranks(static_cast<int>(schedule.size()), kMostRanks)) {
    std::string row(columns, '.');
    for (size_t i = 0; i < schedule[rank].size(); ++i) {
      const SimulatedAction& when = step.actions[rank][i];
      if (is_message(schedule[rank][i].kind) || step.step_s <= 0) continue;
      // A column shows what runs in its middle.
      const double per_column = step.step_s / columns;
      const int first = static_cast<int>(std::ceil(when.start_s / per_column - 0.5 - 1e-9));
      const int last = static_cast<int>(std::ceil(when.end_s / per_column - 0.5 - 1e-9));
      for (int c = std::max(first, 0); c < std::min(last, columns); ++c) {
        const bool aside = when.lane != Lane::kCompute;
        if (!aside || row[c] == '.') row[c] = aside ? ':' : letter(schedule[rank][i]);
      }
    }
    std::string name = str("rank ", rank);
    name.resize(kBefore, ' ');
    out += str(name, row, "  ", fixed(100 * step.ranks[rank].compute_s / std::max(step.step_s, 1e-300), 1), " % ",
               bytes_text(step.rank_peak_bytes[rank]), "\n");
  }
  std::string scale(columns + kBefore, ' ');
  scale[kBefore] = '0';
  const std::string end = time_text(step.step_s);
  std::copy(end.rbegin(), end.rend(), scale.rbegin());
  return str(out, scale, "\n");
}

std::string timeline_svg(const Schedule& schedule, const SimulatedStep& step, const std::string& title) {
  return Svg(schedule, step).draw(title);
}

std::string timeline_trace(const Schedule& schedule, const SimulatedStep& step) {
  constexpr const char* kLanes[] = {"compute", "messages", "collectives", "copies"};
  constexpr double kMicro = 1e6;
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* between = "\n";
  const auto add = [&](const std::string& event) {
    out += between;
    out += event;
    between = ",\n";
  };
  int64_t flow = 0;
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    add(str("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", rank, ",\"args\":{\"name\":\"rank ", rank, "\"}}"));
    add(str("{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":", rank, ",\"args\":{\"sort_index\":", rank, "}}"));
    for (int lane = 0; lane < 4; ++lane) {
      add(str("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", rank, ",\"tid\":", lane, ",\"args\":{\"name\":\"",
              kLanes[lane], "\"}}"));
    }
    for (size_t i = 0; i < schedule[rank].size(); ++i) {
      const Action& action = schedule[rank][i];
      const SimulatedAction& when = step.actions[rank][i];
      const bool receive = is_message(action.kind) && !is_send(action.kind);
      if (receive) continue;  // drawn once, at its sender, with an arrow to where it arrives
      add(str("{\"ph\":\"X\",\"name\":\"", action_text(action), "\",\"pid\":", rank,
              ",\"tid\":", static_cast<int>(when.lane), ",\"ts\":", json_number(when.start_s * kMicro),
              ",\"dur\":", json_number((when.end_s - when.start_s) * kMicro), ",\"args\":{\"stage\":", action.stage,
              ",\"microbatch\":", action.microbatch, ",\"position\":", i, "}}"));
      if (!is_send(action.kind)) continue;
      const int to = step.rank_of_stage[action.peer_stage];
      ++flow;
      add(str("{\"ph\":\"s\",\"name\":\"message\",\"cat\":\"message\",\"id\":", flow, ",\"pid\":", rank,
              ",\"tid\":1,\"ts\":", json_number(when.start_s * kMicro), "}"));
      add(str("{\"ph\":\"f\",\"bp\":\"e\",\"name\":\"message\",\"cat\":\"message\",\"id\":", flow, ",\"pid\":", to,
              ",\"tid\":0,\"ts\":", json_number(when.end_s * kMicro), "}"));
    }
    for (const MemoryPoint& point : rank_memory(step, static_cast<int>(rank))) {
      add(str("{\"ph\":\"C\",\"name\":\"memory\",\"pid\":", rank, ",\"ts\":", json_number(point.at_s * kMicro),
              ",\"args\":{\"bytes\":", json_number(point.bytes), "}}"));
    }
  }
  out += "\n]}\n";
  return out;
}

}  // namespace trireme::plan
