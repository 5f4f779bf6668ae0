#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/replace_file.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/simulate_flags.h"
#include "plan/plan_text.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

double busy(const plan::SimulatedStep& step) { return 1 - step.bubble - step.exposed; }

size_t fullest_rank(const plan::SimulatedStep& step) {
  return static_cast<size_t>(std::max_element(step.rank_peak_bytes.begin(), step.rank_peak_bytes.end()) -
                             step.rank_peak_bytes.begin());
}

double peak_bytes(const plan::SimulatedStep& step) { return step.rank_peak_bytes[fullest_rank(step)]; }

double peak_gb(const plan::SimulatedStep& step) { return peak_bytes(step) / 1e9; }

/// Without a model nothing is known of the devices' memory, and all fits.
bool fits(const SimulatedCase& one) { return one.limit_bytes == 0 || peak_bytes(one.step) <= one.limit_bytes; }

/// "does NOT fit: ...", where that is so.
std::string memory_fault(const SimulatedCase& one) {
  if (fits(one)) return {};
  const double needed = peak_bytes(one.step);
  return str("does NOT fit: pipeline rank ", fullest_rank(one.step), " needs ", plan::bytes_text(needed),
             " of memory, a device has ", plan::bytes_text(one.limit_bytes), "; ",
             static_cast<int64_t>(std::ceil(needed - one.limit_bytes)), " bytes too many");
}

/// The case that was asked for, then what it is compared with.
std::vector<SimulatedCase> run_all(const SimulateRequest& request) {
  const SimulateCase& base = request.base;
  std::vector<SimulatedCase> cases;
  cases.push_back(run_case(base, "as asked"));
  if (!base.slow_ranks.empty() || !base.slow_links.empty()) {
    SimulateCase even = base;
    even.slow_ranks.clear();
    even.slow_links.clear();
    cases.push_back(run_case(even, "nothing slow"));
  }
  for (const std::string& schedule : request.compare) {
    SimulateCase other = base;
    other.schedule = schedule;
    other.virtual_stages = 0;  // that number belongs to one schedule; each other one takes its own
    cases.push_back(run_case(other, schedule));
  }
  for (const std::string& topology : request.compare_topologies) {
    SimulateCase other = base;
    other.topology = topology;
    cases.push_back(run_case(other, "reduced by " + topology));
  }
  for (const double speed : request.compare_links) {
    SimulateCase other = base;
    other.link_gb_s = other.model_link_gb_s = speed;
    cases.push_back(run_case(other, str("links of ", speed, " GB/s")));
  }
  return cases;
}

Json summary(const SimulatedCase& one) {
  Json json = {{"name", one.name},          {"step_ms", one.step.step_s * 1e3}, {"busy", busy(one.step)},
               {"bubble", one.step.bubble}, {"exposed", one.step.exposed},      {"peak_gb", peak_gb(one.step)}};
  if (one.limit_bytes > 0) {
    json["fits"] = fits(one);
    json["fullest_rank"] = fullest_rank(one.step);
    json["too_many_bytes"] = std::max(0.0, std::ceil(peak_bytes(one.step) - one.limit_bytes));
  }
  return json;
}

void print_json(const SimulateRequest& request, const std::vector<SimulatedCase>& cases) {
  const SimulatedCase& first = cases.front();
  Json ranks = Json::array();
  for (size_t rank = 0; rank < first.step.ranks.size(); ++rank) {
    const plan::RankTime& time = first.step.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"compute_ms", time.compute_s * 1e3},
                     {"exposed_ms", time.exposed_s * 1e3},
                     {"bubble_ms", time.bubble_s * 1e3},
                     {"outside_ms", time.outside_s * 1e3},
                     {"peak_gb", first.step.rank_peak_bytes[rank] / 1e9}});
  }
  Json stages = Json::array();
  for (size_t stage = 0; stage < first.step.stage_peak_bytes.size(); ++stage) {
    Json memory = Json::array();
    for (const plan::MemoryPoint& point : first.step.memory[stage]) {
      memory.push_back({point.at_s * 1e3, point.bytes / 1e9});
    }
    stages.push_back({{"stage", stage},
                      {"rank", first.step.rank_of_stage[stage]},
                      {"peak_gb", first.step.stage_peak_bytes[stage] / 1e9},
                      {"memory_ms_gb", memory}});
  }
  Json compared = Json::array();
  for (size_t i = 1; i < cases.size(); ++i) compared.push_back(summary(cases[i]));
  Json json = {{"schema", 1}, {"schedule", request.base.schedule}};
  json["virtual_stages"] = first.virtual_stages;
  json["gpus"] = static_cast<int64_t>(first.schedule.size()) * first.replicas * request.base.tensor_parallel;
  json["reduce_ms"] = first.reduce_ms;
  if (!first.model.empty()) {
    json["model"] = first.model;
    json["closed_form_ms"] = first.closed_form_ms;
  }
  json.update(summary(first));
  json["ranks"] = ranks;
  json["stages"] = stages;
  json["compared"] = compared;
  std::puts(json.dump(2).c_str());
}

int width(const SimulateRequest& request) {
  if (request.width > 0) return request.width;
  winsize size{};
  constexpr int kNoTerminal = 120;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kNoTerminal;
}

std::string title(const SimulateRequest& request, const SimulatedCase& first) {
  const auto ranks = static_cast<int64_t>(first.schedule.size());
  const int64_t gpus = ranks * first.replicas * request.base.tensor_parallel;
  std::string text = str(request.base.schedule, ": ", ranks, " ranks");
  if (first.virtual_stages > 1) text += str(" of ", first.virtual_stages, " stages");
  if (gpus != ranks)
    text += str(", ", gpus, " GPUs in ", first.replicas, first.replicas == 1 ? " replica" : " replicas");
  if (!first.model.empty()) text += "; " + first.model;
  return text;
}

void print_text(const SimulateRequest& request, const std::vector<SimulatedCase>& cases) {
  const SimulatedCase& first = cases.front();
  std::printf("%s\n\n%s\n", title(request, first).c_str(),
              plan::timeline_text(first.schedule, first.step, width(request)).c_str());
  std::puts(
      "0 1 2 ... forward of that micro-batch   = backward, inputs   - weights   ~ recompute   * optimizer\n"
      ": only a collective or copy   . idle\n");
  if (!first.model.empty()) {
    std::printf("closed forms of 'trireme plan': %.2f ms; gradients that computation does not hide: %.3g ms\n\n",
                first.closed_form_ms, first.reduce_ms);
  } else if (first.replicas > 1 && request.base.gradients_mb > 0) {
    std::printf("gradients of one rank over %lld replicas (%s): %.3g ms\n\n", static_cast<long long>(first.replicas),
                request.base.topology.c_str(), first.reduce_ms);
  }
  size_t longest = 4;
  for (const SimulatedCase& one : cases) longest = std::max(longest, one.name.size());
  std::printf("%-*s  %10s  %7s  %7s  %22s  %9s\n", static_cast<int>(longest), "case", "step ms", "busy", "bubble",
              "exposed communication", "peak GB");
  for (const SimulatedCase& one : cases) {
    std::printf("%-*s  %10.2f  %5.1f %%  %5.1f %%  %20.1f %%  %9.3g\n", static_cast<int>(longest), one.name.c_str(),
                one.step.step_s * 1e3, 100 * busy(one.step), 100 * one.step.bubble, 100 * one.step.exposed,
                peak_gb(one.step));
  }
  bool first_fault = true;
  for (const SimulatedCase& one : cases) {
    if (fits(one)) continue;
    std::printf("%s%s: %s\n", first_fault ? "\n" : "", one.name.c_str(), memory_fault(one).c_str());
    first_fault = false;
  }
}

}  // namespace

int cmd_simulate(const std::vector<std::string>& args) {
  const SimulateRequest request = parse_simulate_flags(args);
  if (request.help) {
    std::fputs(simulate_help(), stdout);
    return 0;
  }
  const std::vector<SimulatedCase> cases = run_all(request);
  const SimulatedCase& first = cases.front();
  if (!request.svg.empty()) {
    replace_file(request.svg, plan::timeline_svg(first.schedule, first.step, title(request, first)), "cli.simulate");
  }
  if (!request.trace.empty())
    replace_file(request.trace, plan::timeline_trace(first.schedule, first.step), "cli.simulate");
  if (!request.csv.empty()) replace_file(request.csv, plan::write_schedule_csv(first.schedule), "cli.simulate");
  request.json ? print_json(request, cases) : print_text(request, cases);
  return 0;
}

}  // namespace trireme::cli
