#include "profile/straggler.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::profile {
namespace {

double number_from_environment(const char* name, double fallback, double least, double most, const char* required) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value >= least && value <= most)) {
    throw Error(ErrorKind::kConfig,
                str("[profile.straggler] ", name, " is '", text, "'; ", required, " are required."));
  }
  return value;
}

std::string ms_text(int64_t ns) {
  char text[32];
  const double ms = static_cast<double>(ns) / 1e6;
  std::snprintf(text, sizeof(text), ms < 9.95 ? "%.1f ms" : "%.0f ms", ms);
  return text;
}

int64_t part_of(const Lateness& mean) { return std::max({mean.data_ns, mean.communication_ns, mean.compute_ns}); }

/// Of the ranks the one that the others waited for longest, if it is slow; the number of ranks: none.
size_t slow_one(const StepLateness& step, const StragglerOptions& options) {
  size_t most = 0;
  for (size_t r = 1; r < step.ranks.size(); ++r) {
    if (step.ranks[r].late_ns > step.ranks[most].late_ns) most = r;
  }
  int64_t second = 0;
  for (size_t r = 0; r < step.ranks.size(); ++r) {
    if (r != most) second = std::max(second, step.ranks[r].late_ns);
  }
  const int64_t late = step.ranks[most].late_ns;
  const bool slow = late >= options.least_ns &&
                    static_cast<double>(late) >= options.share * static_cast<double>(step.duration_ns) &&
                    late > 2 * second;
  return slow ? most : step.ranks.size();
}

}  // namespace

StragglerOptions straggler_options_from_environment() {
  StragglerOptions options;
  options.num_steps = static_cast<int>(
      number_from_environment("TRIREME_SLOW_AFTER_STEPS", options.num_steps, 0, 1e6, "0 (no watch) to 1000000 steps"));
  options.share =
      number_from_environment("TRIREME_SLOW_PERCENT", 100 * options.share, 1, 100, "1 to 100 percent") / 100;
  return options;
}

const char* StragglerNews::cause() const {
  const int64_t most = part_of(mean);
  if (most == mean.data_ns) return "data loading";
  return most == mean.compute_ns ? "computation or other code of its own" : "communication";
}

std::string StragglerNews::words(bool live) const {
  const std::string who = str("rank ", rank, host.empty() ? "" : str(" (", host, ")"));
  if (!slow) {
    return str(who, " is no longer slow: in none of the last ", num_steps, " steps (", first_step, " to ", last_step,
               ") the others waited for it as before");
  }
  char percent[32];
  std::snprintf(percent, sizeof(percent), "%.0f %%",
                step_ns > 0 ? 100 * static_cast<double>(mean.late_ns) / static_cast<double>(step_ns) : 0);
  return str(who, live ? " is" : " was", " slow: it came ", ms_text(mean.late_ns), " later than the others in each of ",
             live ? "the last " : "", num_steps, " steps (", percent, " of a step; steps ", first_step, " to ",
             last_step, "), ", ms_text(std::min(part_of(mean), mean.late_ns)), " of it in ", cause());
}

std::vector<StragglerNews> StragglerWatch::look(const std::vector<TraceSnapshot>& traces) {
  std::vector<StragglerNews> news;
  if (options_.num_steps == 0) return news;
  for (const StepLateness& step : lateness_of_steps(traces, last_step_)) {
    if (step.before != last_step_) {
      for (auto& [rank, state] : ranks_) state.in_a_row = 0;
    }
    last_step_ = step.step;
    const size_t slow = slow_one(step, options_);
    for (size_t r = 0; r < traces.size(); ++r) {
      count(traces[r].rank, traces[r].host, step, step.ranks[r], r == slow, news);
    }
  }
  return news;
}

void StragglerWatch::count(int rank, const std::string& host, const StepLateness& step, const Lateness& own, bool slow,
                           std::vector<StragglerNews>& news) {
  auto at = std::find_if(ranks_.begin(), ranks_.end(), [rank](const auto& one) { return one.first == rank; });
  if (at == ranks_.end()) at = ranks_.insert(at, {rank, Rank{}});
  Rank& state = at->second;
  if (state.slow != slow || state.in_a_row == 0) {
    state.slow = slow;
    state.in_a_row = 0;
    state.steps.clear();
  }
  ++state.in_a_row;
  state.steps.push_back({step.step, step.before, step.duration_ns, {own}});
  if (state.steps.size() > static_cast<size_t>(options_.num_steps)) state.steps.erase(state.steps.begin());
  if (state.told == slow || state.in_a_row < options_.num_steps) return;
  state.told = slow;
  StragglerNews one;
  one.slow = slow;
  one.rank = rank;
  one.host = host;
  one.first_step = state.steps.front().step;
  one.last_step = step.step;
  one.num_steps = options_.num_steps;
  for (const StepLateness& each : state.steps) {
    one.step_ns += each.duration_ns / one.num_steps;
    one.mean.late_ns += each.ranks[0].late_ns / one.num_steps;
    one.mean.data_ns += each.ranks[0].data_ns / one.num_steps;
    one.mean.communication_ns += each.ranks[0].communication_ns / one.num_steps;
    one.mean.compute_ns += each.ranks[0].compute_ns / one.num_steps;
  }
  news.push_back(one);
}

}  // namespace trireme::profile
