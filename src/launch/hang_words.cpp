#include "launch/hang_words.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/str.h"
#include "launch/failure_report.h"
#include "profile/divergence.h"
#include "profile/group_meeting.h"

namespace trireme::launch {
namespace {

using profile::Culprit;
using profile::HangFinding;
using profile::StalledCall;
using profile::TraceSnapshot;

constexpr size_t kMostLines = 6;

double monotonic_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

int64_t unix_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string busy_text(const profile::BusyState& busy) {
  std::string text = busy.what;
  if (busy.fraction >= 0) text += str(", ", std::lround(busy.fraction * 100), " %");
  return text + str(", for ", seconds_text(monotonic_s() - static_cast<double>(busy.since_ns) * 1e-9));
}

/// Where a rank is, by the library's own notes; empty: nowhere that matters.
std::string notes_text(const TraceSnapshot& trace) {
  std::string text;
  for (const profile::BusyState& note : trace.notes) text += str("; it is in ", busy_text(note));
  return text;
}

std::string stopped_text(const ProcessLook& look) {
  return str("is stopped (SIGSTOP); kill -CONT ", look.pid, " lets it go on");
}

/// What a rank does instead of taking part, in a word for programs and in words.
std::pair<const char*, std::string> doing_of(const Culprit& culprit, const TraceSnapshot* trace,
                                             const ProcessLook& look) {
  if (look.gone()) {
    if (trace == nullptr) return {"gone", "has ended"};
    return {"gone", trace->closed ? "has ended in good order" : "is dead"};
  }
  if (look.state == 't') return {"stopped", "is held by a debugger"};
  if (look.stopped()) return {"stopped", stopped_text(look)};
  if (is_busy(trace, look)) return {"busy", str("is busy: ", busy_text(trace->busy.back()))};
  if (trace == nullptr) return {"absent", str("has not come to trireme::init(): it ", look.words())};
  if (culprit.in_a_call && look.main_thread_communicates())
    return {"in a call", str("is still at ", culprit.call, ", where all are: it ", look.words())};
  return {"own code", str("is in its own code: it ", look.words())};
}

std::string culprit_line(int rank, const ProcessLook& look, const std::string& doing, const std::string& run_dir) {
  return str(
      "[launch]   rank ", rank, " (pid ", look.pid, ") ", doing, ". ",
      look.text.empty() ? std::string{} : str("All its threads: ", short_path(run_dir), "/reports/rank", rank, ".txt."),
      "\n");
}

std::string last_common_text(const StalledCall& call) {
  if (call.call == profile::kMeetingCall) return {};
  if (call.last_common == 0) return " None of this kind was finished by all before.";
  return str(" The last one that all finished is ", call.last_common, call.last_common_what.empty() ? "" : ", ",
             call.last_common_what, ".");
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  return str(ranks.size() == 1 ? "rank " : "ranks ", join(ranks));
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

std::string call_text(const StalledCall& call) {
  if (call.call == profile::kMeetingCall) return str("group '", call.group, "', which is being made");
  return str("group '", call.group, "' call ", call.call, ", ", call.what,
             call.step > 0 ? str(", step ", call.step) : "");
}

bool is_busy(const TraceSnapshot* trace, const ProcessLook& look) {
  return trace != nullptr && !trace->busy.empty() && !look.gone() && !look.stopped();
}

HangStory tell_hang(const HangFinding& finding, const std::vector<TraceSnapshot>& traces,
                    const std::map<int, ProcessLook>& looks, const std::string& run_dir) {
  static const ProcessLook kNotLooked;
  const StalledCall& first = finding.calls.front();
  HangStory story;
  story.all_busy = !finding.culprits.empty();
  nlohmann::json json = {{"unix_ns", unix_ns()},
                         {"group", first.group},
                         {"call", first.call},
                         {"what", first.what},
                         {"step", first.step},
                         {"waiting", first.waiting},
                         {"late", first.late},
                         {"waited_s", first.waited_s},
                         {"last_common_call", first.last_common},
                         {"circle", finding.circle},
                         {"culprits", nlohmann::json::array()}};
  std::string details;
  for (size_t i = 1; i < finding.calls.size() && i < kMostLines; ++i) {
    const StalledCall& call = finding.calls[i];
    details += str("[launch]   Also ", call_text(call), ": ", ranks_text(call.waiting),
                   call.waiting.size() == 1 ? " waits" : " wait", " for ", ranks_text(call.late), ".\n");
  }
  for (size_t i = 0; i < finding.links.size() && i < kMostLines; ++i)
    details += str("[launch]   ", finding.links[i], ".\n");
  if (!finding.circle.empty()) {
    details += str("[launch]   ", ranks_text(finding.circle), " wait for each other: none of them can go on.\n");
  }
  for (const Culprit& culprit : finding.culprits) {
    const auto trace =
        std::find_if(traces.begin(), traces.end(), [&](const auto& t) { return t.rank == culprit.rank; });
    const TraceSnapshot* seen = trace == traces.end() ? nullptr : &*trace;
    const auto looked = looks.find(culprit.rank);
    const ProcessLook& look = looked == looks.end() ? kNotLooked : looked->second;
    story.all_busy = story.all_busy && is_busy(seen, look);
    auto [kind, doing] = doing_of(culprit, seen, look);
    if (seen != nullptr && !look.gone()) doing += notes_text(*seen);
    details += culprit_line(culprit.rank, look, doing, run_dir);
    json["culprits"].push_back({{"rank", culprit.rank}, {"pid", look.pid}, {"doing", kind}, {"words", doing}});
  }
  if (const auto divergence = profile::find_divergence(traces)) {
    details += str("[launch]   Before that, ", divergence->words(), "\n");
    json["divergence"] = divergence->words();
    json["odd"] = divergence->odd;
  }
  json["kind"] = story.all_busy ? "busy" : "hang";
  story.text =
      str("[launch] ", story.all_busy ? "Waiting: " : "HANG: ", call_text(first), ": ", ranks_text(first.waiting),
          first.waiting.size() == 1 ? " has" : " have", " waited ", seconds_text(first.waited_s), " for ",
          ranks_text(first.late), ".", last_common_text(first), "\n", details);
  // Names of functions and threads are the program's own and may hold any bytes.
  story.json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return story;
}

HangStory tell_stopped_last(const std::vector<int>& ranks, double waited_s, const std::map<int, ProcessLook>& looks,
                            const std::string& run_dir) {
  HangStory story;
  nlohmann::json json = {{"kind", "hang"},    {"unix_ns", unix_ns()}, {"group", ""},  {"call", 0},
                         {"what", "the end"}, {"waited_s", waited_s}, {"late", ranks}};
  story.text = str("[launch] HANG: the end of the job: the launcher has waited ", seconds_text(waited_s), " for ",
                   ranks_text(ranks), "; all others have ended.\n");
  for (const int rank : ranks) {
    const ProcessLook& look = looks.at(rank);
    const std::string doing = stopped_text(look);
    story.text += culprit_line(rank, look, doing, run_dir);
    json["culprits"].push_back({{"rank", rank}, {"pid", look.pid}, {"doing", "stopped"}, {"words", doing}});
  }
  story.json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return story;
}

}  // namespace trireme::launch
