#include <algorithm>
#include <cstdio>

#include "base/printable.h"
#include "base/str.h"
#include "trace/report.h"

namespace trireme::trace {
namespace {

/// snprintf into a string.
template <typename... Parts>
std::string format(const char* pattern, Parts... parts) {
  char text[512];
  const int n = std::snprintf(text, sizeof(text), pattern, parts...);
  return {text, static_cast<size_t>(std::clamp(n, 0, static_cast<int>(sizeof(text)) - 1))};
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return format("%.2f GB", bytes / 1e9);
  if (bytes >= 1e6) return format("%.2f MB", bytes / 1e6);
  if (bytes >= 1e3) return format("%.2f kB", bytes / 1e3);
  return format("%.0f B", bytes);
}

std::string flops_text(double flops) {
  if (flops >= 1e12) return format("%.2f TFLOP", flops / 1e12);
  if (flops >= 1e9) return format("%.2f GFLOP", flops / 1e9);
  return format("%.2f MFLOP", flops / 1e6);
}

bool any_share(const TraceReport& report, Share share) {
  return std::any_of(report.ranks.begin(), report.ranks.end(),
                     [share](const RankReport& one) { return one.share[static_cast<size_t>(share)] > 0; });
}

/// Columns that are zero for every rank are left out.
std::vector<Share> shown_shares(const TraceReport& report) {
  std::vector<Share> shares;
  for (int s = 0; s < kNumShares; ++s) {
    if (any_share(report, static_cast<Share>(s))) shares.push_back(static_cast<Share>(s));
  }
  return shares;
}

void rank_table(const TraceReport& report, std::string& out) {
  const std::vector<Share> shares = shown_shares(report);
  const bool many = report.ranks.size() > 1;
  const bool flops = report.flops > 0;
  out += "rank    step ms";
  for (const Share share : shares)
    out += format("  %*s", static_cast<int>(std::max<size_t>(7, share_name(share, report).size())),
                  share_name(share, report).c_str());
  if (any_share(report, Share::kExposed) && !report.communication_only) out += "  hidden comm.";
  if (many) out += "  others wait ms";
  if (flops) out += "     FLOP a step";
  if (report.mfu > 0) out += "     MFU";
  out += '\n';
  for (const RankReport& one : report.ranks) {
    out += format("%4d  %9.2f", one.rank, one.step_ms);
    for (const Share share : shares) {
      out += format("  %*.1f %%", static_cast<int>(std::max<size_t>(7, share_name(share, report).size())) - 2,
                    100 * one.share[static_cast<size_t>(share)]);
    }
    if (any_share(report, Share::kExposed) && !report.communication_only)
      out += format("  %10.1f %%", 100 * one.hidden);
    if (many) out += format("  %14.2f", one.late_ms);
    if (flops) out += format("  %14s", flops_text(one.flops).c_str());
    if (report.mfu > 0) out += format("  %4.1f %%", 100 * one.mfu);
    out += '\n';
  }
}

void step_table(const TraceReport& report, std::string& out) {
  const std::vector<Share> shares = shown_shares(report);
  out += "\nstep  rank         ms";
  for (const Share share : shares)
    out += format("  %*s", static_cast<int>(std::max<size_t>(7, share_name(share, report).size())),
                  share_name(share, report).c_str());
  out += '\n';
  for (const StepReport& step : report.steps) {
    for (size_t r = 0; r < step.ranks.size(); ++r) {
      const StepShares& one = step.ranks[r];
      if (one.total_ns <= 0) continue;
      out += format("%4lld  %4d  %9.2f", static_cast<long long>(step.number), report.ranks[r].rank,
                    static_cast<double>(one.total_ns) / 1e6);
      for (const Share share : shares) {
        const double part =
            static_cast<double>(one.share_ns[static_cast<size_t>(share)]) / static_cast<double>(one.total_ns);
        out += format("  %*.1f %%", static_cast<int>(std::max<size_t>(7, share_name(share, report).size())) - 2,
                      100 * part);
      }
      out += '\n';
    }
  }
}

void collective_table(const TraceReport& report, std::string& out) {
  if (report.collectives.empty()) return;
  constexpr size_t kMost = 12;
  out +=
      "\ncollective      group                  calls      bytes in   total ms   waited ms   median us   busbw GB/s\n";
  for (size_t i = 0; i < std::min(kMost, report.collectives.size()); ++i) {
    const CollectiveReport& one = report.collectives[i];
    out += format("%-14s  %-20.20s  %6lld  %12s  %9.2f  %10.2f  %10.1f  %11s\n", one.op.c_str(),
                  printable(one.group).c_str(), static_cast<long long>(one.num_calls), bytes_text(one.bytes).c_str(),
                  one.total_ms, one.waited_ms, one.median_us,
                  one.busbw_gb_s > 0 ? format("%.3g", one.busbw_gb_s).c_str() : "-");
  }
  if (report.collectives.size() > kMost)
    out += str("and ", report.collectives.size() - kMost, " more; --json has all\n");
}

void matrix_table(const TraceReport& report, std::string& out) {
  constexpr size_t kWidest = 16;
  const size_t n = report.ranks.size();
  if (n < 2 || report.collectives.empty()) return;
  double total = 0;
  for (const auto& row : report.matrix_bytes) {
    for (const double bytes : row) total += bytes;
  }
  if (total <= 0) return;
  if (n > kWidest) {
    out += str("\ncommunication matrix: ", n, " ranks, see --html or --json\n");
    return;
  }
  out += "\nMB from \\ to";
  for (const RankReport& one : report.ranks) out += format("  %9d", one.rank);
  out += '\n';
  for (size_t i = 0; i < n; ++i) {
    out += format("%12d", report.ranks[i].rank);
    for (size_t j = 0; j < n; ++j) out += i == j ? "          -" : format("  %9.2f", report.matrix_bytes[i][j] / 1e6);
    out += '\n';
  }
  if (report.unplaced_bytes > 0)
    out += str(bytes_text(report.unplaced_bytes), " more: peer or members are not in the files\n");
}

void operator_table(const TraceReport& report, std::string& out) {
  if (report.operators.empty()) return;
  double total = 0;
  for (const OperatorReport& one : report.operators) total += one.flops;
  out += "\noperator                                              calls            FLOP    share\n";
  for (const OperatorReport& one : report.operators) {
    out +=
        format("%-50.50s  %7lld  %14s  %5.1f %%\n", printable(one.name).c_str(), static_cast<long long>(one.num_calls),
               flops_text(one.flops).c_str(), total > 0 ? 100 * one.flops / total : 0);
  }
}

}  // namespace

std::string share_name(Share share, const TraceReport& report) {
  switch (share) {
    case Share::kCompute:
      return "compute";
    case Share::kExposed:
      return report.communication_only ? "communication" : "exposed comm.";
    case Share::kImbalance:
      return "imbalance";
    case Share::kCopy:
      return "copies";
    case Share::kDataWait:
      return "data wait";
    case Share::kGap:
      return report.communication_only ? "between collectives" : report.on_device ? "launch gaps" : "not traced";
  }
  return {};
}

std::string report_text(const TraceReport& report, bool all_steps) {
  const bool steps_known = !report.steps.empty() && report.steps.back().number >= 0;
  std::string out = str(report.ranks.size(), report.ranks.size() == 1 ? " rank, " : " ranks, ");
  out += steps_known ? str(report.steps.size(), report.steps.size() == 1 ? " step" : " steps",
                           format(" of %.2f ms (median)\n\n", report.step_ms))
                     : format("%.2f ms in all\n\n", report.step_ms);
  for (const Verdict& verdict : report.verdicts) out += str("  ", printable(verdict.text), "\n");
  out += '\n';
  rank_table(report, out);
  if (all_steps) step_table(report, out);
  collective_table(report, out);
  matrix_table(report, out);
  operator_table(report, out);
  if (!report.clock_lines.empty() || !report.notices.empty()) out += '\n';
  for (const std::string& line : report.clock_lines) out += printable(line) + "\n";
  for (const std::string& notice : report.notices) out += "note: " + printable(notice) + "\n";
  return out;
}

}  // namespace trireme::trace
