#include <nlohmann/json.hpp>

#include "base/str.h"
#include "trace/report.h"

namespace trireme::trace {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kShareKeys[kNumShares] = {"compute", "exposed_communication", "imbalance", "copy", "data_wait",
                                                "gap"};

Json shares_of(const double (&share)[kNumShares], double overlapped) {
  Json json = Json::object();
  for (int s = 0; s < kNumShares; ++s) json[kShareKeys[s]] = share[s];
  json["overlapped_communication"] = overlapped;
  return json;
}

Json steps_of(const TraceReport& report) {
  Json steps = Json::array();
  for (const StepReport& step : report.steps) {
    Json ranks = Json::array();
    for (size_t r = 0; r < step.ranks.size(); ++r) {
      const StepShares& one = step.ranks[r];
      if (one.total_ns <= 0) continue;
      double share[kNumShares];
      for (int s = 0; s < kNumShares; ++s)
        share[s] = static_cast<double>(one.share_ns[s]) / static_cast<double>(one.total_ns);
      Json row = {{"rank", report.ranks[r].rank}, {"step_ms", static_cast<double>(one.total_ns) / 1e6}};
      row["shares"] = shares_of(share, static_cast<double>(one.overlapped_ns) / static_cast<double>(one.total_ns));
      Json waits = Json::object();
      for (size_t late = 0; late < one.waits_ns.size(); ++late) {
        if (one.waits_ns[late] > 0)
          waits[std::to_string(report.ranks[late].rank)] = static_cast<double>(one.waits_ns[late]) / 1e6;
      }
      row["waits_for_ms"] = waits;
      row["flops"] = one.flops;
      ranks.push_back(std::move(row));
    }
    steps.push_back({{"step", step.number < 0 ? Json() : Json(step.number)}, {"ranks", std::move(ranks)}});
  }
  return steps;
}

Json ranks_of(const TraceReport& report) {
  Json ranks = Json::array();
  for (size_t r = 0; r < report.ranks.size(); ++r) {
    const RankReport& one = report.ranks[r];
    const ClockFit& clock = report.clocks[r];
    Json row = {{"rank", one.rank}, {"file", one.source}, {"host", one.host.empty() ? Json() : Json(one.host)}};
    row["num_steps"] = one.num_steps;
    row["step_ms"] = one.step_ms;
    row["shares"] = shares_of(one.share, one.overlapped);
    row["hidden"] = one.hidden;
    row["others_wait_ms"] = one.late_ms;
    row["others_wait_share"] = one.late_share;
    row["num_last"] = one.num_last;
    row["late_cause"] = one.late_cause.empty() ? Json() : Json(one.late_cause);
    row["flops"] = one.flops;
    row["mfu"] = one.mfu > 0 ? Json(one.mfu) : Json();
    row["clock"] = {{"aligned", clock.aligned},
                    {"same_clock", clock.same_clock},
                    {"offset_us", clock.offset_ns / 1e3},
                    {"drift_ppm", clock.drift * 1e6},
                    {"residual_median_us", clock.residual_median_us},
                    {"residual_p95_us", clock.residual_p95_us},
                    {"num_matches", clock.num_matches}};
    ranks.push_back(std::move(row));
  }
  return ranks;
}

}  // namespace

std::string report_json(const TraceReport& report) {
  Json json = {{"schema", 1},
               {"step_ms", report.step_ms},
               {"on_device", report.on_device},
               {"communication_only", report.communication_only}};
  json["verdicts"] = Json::array();
  for (const Verdict& verdict : report.verdicts)
    json["verdicts"].push_back({{"share", verdict.share}, {"text", verdict.text}});
  json["ranks"] = ranks_of(report);
  json["steps"] = steps_of(report);
  json["collectives"] = Json::array();
  for (const CollectiveReport& one : report.collectives) {
    json["collectives"].push_back({{"op", one.op},
                                   {"group", one.group},
                                   {"num_calls", one.num_calls},
                                   {"bytes", one.bytes},
                                   {"total_ms", one.total_ms},
                                   {"waited_ms", one.waited_ms},
                                   {"median_us", one.median_us},
                                   {"busbw_gb_per_s", one.busbw_gb_s > 0 ? Json(one.busbw_gb_s) : Json()}});
  }
  json["matrix_bytes"] = report.matrix_bytes;
  json["unplaced_bytes"] = report.unplaced_bytes;
  json["operators"] = Json::array();
  for (const OperatorReport& one : report.operators) {
    json["operators"].push_back({{"name", one.name}, {"num_calls", one.num_calls}, {"flops", one.flops}});
  }
  json["flops"] = report.flops;
  json["mfu"] = report.mfu > 0 ? Json(report.mfu) : Json();
  json["clocks"] = report.clock_lines;
  json["notices"] = report.notices;
  // Names of foreign files may hold bytes that are not UTF-8.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::trace
