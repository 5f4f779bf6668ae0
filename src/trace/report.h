// Where the time of a job goes, from the traces of its ranks: `trireme trace report`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/match.h"
#include "trace/shares.h"
#include "trace/timeline.h"

namespace trireme::trace {

struct ReportOptions {
  double peak_flops = 0;             ///< of one device, a second, for MFU; 0: unknown
  std::vector<std::string> notices;  ///< of whoever read the timelines, for the report
};

/// Over all steps of one rank.
struct RankReport {
  int rank = 0;
  std::string source;
  std::string host;
  int64_t num_steps = 0;
  double step_ms = 0;             ///< median
  double share[kNumShares] = {};  ///< parts of the steps' time, sum 1
  double overlapped = 0;          ///< a part of share[kCompute]
  double hidden = 0;              ///< overlapped / all communication; 0 without any
  double late_ms = 0;             ///< what the others waited for this rank, mean of the others, a step
  double late_share = 0;          ///< the same as a part of their steps
  int64_t num_last = 0;           ///< collectives that this rank came to last
  std::string late_cause;         ///< "its data loader", ...; empty: it is not late
  double flops = 0;               ///< of a step, mean
  double mfu = 0;                 ///< 0: unknown
};

struct StepReport {
  int64_t number = -1;
  std::vector<StepShares> ranks;  ///< by rank as in TraceReport::ranks; total_ns 0 where a rank lacks the step
};

struct CollectiveReport {
  std::string group;
  std::string op;
  int64_t num_calls = 0;  ///< of all ranks
  double bytes = 0;       ///< passed in, all ranks; -1: unknown
  double total_ms = 0;    ///< of all ranks, waiting included
  double waited_ms = 0;   ///< for the rank that came last
  double median_us = 0;   ///< of a call
  double busbw_gb_s = 0;  ///< median over matched calls, of the time after the last rank came; 0: unknown
};

struct OperatorReport {
  std::string name;
  int64_t num_calls = 0;
  double flops = 0;
};

struct Verdict {
  double share = 0;  ///< of the step, 0 to 1
  std::string text;
};

struct TraceReport {
  std::vector<RankReport> ranks;
  std::vector<StepReport> steps;
  std::vector<CollectiveReport> collectives;  ///< by time, most first
  std::vector<OperatorReport> operators;      ///< by FLOPs, most first
  std::vector<ClockFit> clocks;
  std::vector<std::string> clock_lines;
  /// bytes[i][j]: what must get from rank i to rank j, each collective taken as exchanged directly: an all_reduce of S bytes over n ranks is 2S/n to
  /// each other rank, an all_gather S, a reduce_scatter and an all_to_all S/n, a broadcast S from its root. Indices as in `ranks`.
  std::vector<std::vector<double>> matrix_bytes;
  double unplaced_bytes = 0;      ///< of calls whose peer or members no file tells
  std::vector<Verdict> verdicts;  ///< most important first, at least one
  std::vector<std::string> notices;
  bool communication_only = false;
  bool on_device = false;
  double step_ms = 0;  ///< median over ranks and steps
  double flops = 0;    ///< of a step, all ranks
  double mfu = 0;
};

/// What the pictures of a report need beside it.
struct ReportDetails {
  std::vector<Timeline> timelines;
  std::vector<std::vector<Segment>> segments;
};

/// Aligns the timelines' clocks, and reports. `details`, where given, gets the aligned timelines. Throws kInvalidArgument for no timeline.
[[nodiscard]] TraceReport make_report(std::vector<Timeline> timelines, const ReportOptions& options,
                                      ReportDetails* details = nullptr);

/// The name of a share: "compute", "exposed communication", "imbalance", "copies", "data wait", "gaps".
[[nodiscard]] std::string share_name(Share share, const TraceReport& report);

/// For a terminal. With `all_steps` one line for each rank and step.
[[nodiscard]] std::string report_text(const TraceReport& report, bool all_steps);
/// {"schema": 1, ...}; docs/cli.md lists the keys.
[[nodiscard]] std::string report_json(const TraceReport& report);
/// One page that needs no network.
[[nodiscard]] std::string report_html(const TraceReport& report, const ReportDetails& details);

/// "38 % of the step waits for rank 2's data loader": filled in by make_report.
void judge(TraceReport& report);

}  // namespace trireme::trace
