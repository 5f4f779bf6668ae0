#include "trace/match.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "trace/robust.h"

namespace trireme::trace {
namespace {

using Calls = std::vector<uint32_t>;  // indices into a timeline's calls, by start

constexpr int kMaxShift = 200;
constexpr size_t kCompared = 512;

bool matchable(const Call& call) { return call.op != CollectiveOp::kSend && call.op != CollectiveOp::kRecv; }

bool alike(const Call& a, const Call& b) {
  return a.op == b.op && (a.bytes_in < 0 || b.bytes_in < 0 || a.bytes_in == b.bytes_in);
}

/// The difference between two ranks' clocks as far as steps with one number tell, which is to a fraction of a step.
double coarse_offset(const Timeline& a, const Timeline& b) {
  std::map<int64_t, int64_t> starts;
  for (const Step& step : a.steps) starts.emplace(step.number, step.start_ns);
  std::vector<double> differences;
  for (const Step& step : b.steps) {
    const auto found = step.number >= 0 ? starts.find(step.number) : starts.end();
    if (found != starts.end()) differences.push_back(static_cast<double>(step.start_ns - found->second));
  }
  return differences.empty() ? 0 : median(differences);
}

/// b[i + shift] belongs to a[i].
int best_shift(const Timeline& a, const Calls& in_a, const Timeline& b, const Calls& in_b) {
  const double guess = coarse_offset(a, b);
  const auto n = static_cast<int>(in_a.size());
  const auto m = static_cast<int>(in_b.size());
  struct Candidate {
    int shift;
    double agreement;
    double distance;
  };
  std::vector<Candidate> candidates;
  const int limit = std::min(kMaxShift, std::max(n, m));
  for (int shift = -limit; shift <= limit; ++shift) {
    const int from = std::max(0, -shift);
    const int to = std::min(n, m - shift);
    if (to - from < std::max(1, std::min(n, m) / 2)) continue;
    const int compared = std::min<int>(to - from, kCompared);
    int equal = 0;
    std::vector<double> differences;
    for (int i = from; i < from + compared; ++i) {
      const Call& one = a.calls[in_a[static_cast<size_t>(i)]];
      const int in_other = i + shift;
      const Call& other = b.calls[in_b[static_cast<size_t>(in_other)]];
      if (!alike(one, other)) continue;
      ++equal;
      differences.push_back(static_cast<double>(other.end_ns - one.end_ns));
    }
    if (equal == 0) continue;
    candidates.push_back({shift, static_cast<double>(equal) / compared, std::abs(median(differences) - guess)});
  }
  double best = 0;
  for (const Candidate& one : candidates) best = std::max(best, one.agreement);
  const Candidate* chosen = nullptr;
  for (const Candidate& one : candidates) {
    if (one.agreement >= best - 0.01 && (chosen == nullptr || one.distance < chosen->distance)) chosen = &one;
  }
  return chosen == nullptr ? 0 : chosen->shift;
}

void match_by_number(const std::string& name, const std::vector<Timeline>& timelines, const std::vector<Calls>& calls,
                     std::vector<Match>& matches) {
  std::map<int64_t, Match> by_number;
  for (uint32_t rank = 0; rank < timelines.size(); ++rank) {
    for (const uint32_t index : calls[rank]) {
      const Call& call = timelines[rank].calls[index];
      Match& match = by_number[call.sequence];
      if (match.members.empty()) match.op = call.op;
      // Ranks that called different things under one number are a fault of the program, and no match.
      const bool again = !match.members.empty() && match.members.back().rank == rank;
      if (match.op == call.op && !again) match.members.push_back({rank, index});
    }
  }
  for (auto& [number, match] : by_number) {
    if (match.members.size() < 2) continue;
    match.group = name;
    matches.push_back(std::move(match));
  }
}

void match_by_position(const std::string& name, const std::vector<Timeline>& timelines, const std::vector<Calls>& calls,
                       std::vector<Match>& matches) {
  uint32_t reference = 0;
  for (uint32_t rank = 1; rank < calls.size(); ++rank) {
    if (calls[rank].size() > calls[reference].size()) reference = rank;
  }
  const Timeline& first = timelines[reference];
  std::vector<Match> found(calls[reference].size());
  for (size_t i = 0; i < found.size(); ++i) {
    found[i] = {name, first.calls[calls[reference][i]].op, {{reference, calls[reference][i]}}};
  }
  for (uint32_t rank = 0; rank < calls.size(); ++rank) {
    if (rank == reference || calls[rank].empty()) continue;
    const int shift = best_shift(first, calls[reference], timelines[rank], calls[rank]);
    for (size_t i = 0; i < found.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) + shift;
      if (at < 0 || at >= static_cast<int64_t>(calls[rank].size())) continue;
      const uint32_t index = calls[rank][static_cast<size_t>(at)];
      if (alike(first.calls[calls[reference][i]], timelines[rank].calls[index]))
        found[i].members.push_back({rank, index});
    }
  }
  for (Match& match : found) {
    if (match.members.size() >= 2) matches.push_back(std::move(match));
  }
}

}  // namespace

std::vector<Match> match_calls(const std::vector<Timeline>& timelines) {
  std::map<std::string, std::pair<std::string, std::vector<Calls>>> groups;
  for (size_t rank = 0; rank < timelines.size(); ++rank) {
    const Timeline& timeline = timelines[rank];
    for (uint32_t i = 0; i < timeline.calls.size(); ++i) {
      const Call& call = timeline.calls[i];
      if (!matchable(call)) continue;
      auto& [name, calls] = groups[timeline.groups[call.group].key];
      name = timeline.groups[call.group].name;
      calls.resize(timelines.size());
      calls[rank].push_back(i);
    }
  }
  std::vector<Match> matches;
  for (const auto& [key, group] : groups) {
    const auto& [name, calls] = group;
    bool numbered = true;
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      for (const uint32_t i : calls[rank]) numbered = numbered && timelines[rank].calls[i].sequence >= 0;
    }
    (numbered ? match_by_number : match_by_position)(name, timelines, calls, matches);
  }
  return matches;
}

}  // namespace trireme::trace
