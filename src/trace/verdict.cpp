// What to think of a report, in words.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/str.h"
#include "trace/report.h"

namespace trireme::trace {
namespace {

constexpr double kWorthSaying = 0.05;  // of the step

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), share < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share);
  return text;
}

double mean_share(const TraceReport& report, Share share) {
  double sum = 0;
  for (const RankReport& one : report.ranks) sum += one.share[static_cast<size_t>(share)];
  return sum / static_cast<double>(report.ranks.size());
}

/// Of the ranks that nobody waits for: what a late rank does has been said already.
double mean_share_of_punctual(const TraceReport& report, Share share) {
  double sum = 0;
  int count = 0;
  for (const RankReport& one : report.ranks) {
    if (one.late_share >= kWorthSaying) continue;
    sum += one.share[static_cast<size_t>(share)];
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

void late_ranks(TraceReport& report) {
  for (const RankReport& one : report.ranks) {
    if (one.late_share < kWorthSaying) continue;
    if (one.late_cause.empty()) {
      report.verdicts.push_back(
          {one.late_share,
           str(percent(one.late_share), " of the step waits for rank ", one.rank,
               ", of whose time no share stands out: it comes last by chance, or other programs disturb it.")});
      continue;
    }
    const bool owned = one.late_cause.starts_with("its ");
    std::string text = str(percent(one.late_share), " of the step waits for rank ", one.rank);
    text += owned ? str("'s ", one.late_cause.substr(4)) : str(": ", one.late_cause);
    if (one.late_cause.starts_with("its data"))
      text += ". More loader workers, prefetching or faster storage there would help.";
    if (one.late_cause.starts_with("its compu"))
      text += ". Its share of the work is larger, or its processor slower: compare clocks, temperature, batch sizes.";
    if (one.late_cause.starts_with("its launch"))
      text += ". Its CPU launches kernels too slowly: look at its core binding and what else runs there.";
    if (!owned) text += ". What that is, a profiler's trace of that rank tells.";
    report.verdicts.push_back({one.late_share, text});
  }
}

/// Waits spread over many ranks, each of them too little to be named.
void spread_waits(TraceReport& report) {
  double named = 0;
  for (const Verdict& verdict : report.verdicts) named += verdict.share;
  const double rest = mean_share(report, Share::kImbalance) - named;
  if (rest < kWorthSaying) return;
  report.verdicts.push_back(
      {rest,
       str(percent(rest),
           " of the step is waiting in collectives for ranks that change from call to call: their work is uneven.")});
}

void shares_in_words(TraceReport& report) {
  if (const double data = mean_share_of_punctual(report, Share::kDataWait);
      data >= kWorthSaying && !report.communication_only) {
    report.verdicts.push_back(
        {data,
         str(percent(data),
             " of the step waits for the data loader (mean of the ranks). Prefetch, or use more loader workers.")});
  }
  if (const double exposed = mean_share(report, Share::kExposed); exposed >= kWorthSaying) {
    std::string text = str(percent(exposed), " of the step is communication that computation does not hide");
    if (!report.collectives.empty()) {
      const CollectiveReport& most = report.collectives.front();
      text += str(", most of it ", most.op, " in group '", most.group, "'");
    }
    if (report.communication_only)
      text = str(percent(exposed), " of the step is spent in collectives after all ranks have come");
    report.verdicts.push_back({exposed, text + "."});
  }
  if (const double copies = mean_share_of_punctual(report, Share::kCopy); copies >= kWorthSaying) {
    report.verdicts.push_back(
        {copies,
         str(percent(copies),
             " of the step only copies memory. Pinned memory and non-blocking copies can run beside kernels.")});
  }
  if (const double gaps = mean_share_of_punctual(report, Share::kGap);
      gaps >= kWorthSaying && !report.communication_only) {
    report.verdicts.push_back(
        {gaps, report.on_device ? str(percent(gaps),
                                      " of the step the GPU idles between kernels: the CPU launches too slowly. Larger "
                                      "batches, fused kernels or CUDA graphs help.")
                                : str(percent(gaps),
                                      " of the step is in code that the trace does not show (Python, I/O, waiting).")});
  }
}

}  // namespace

void judge(TraceReport& report) {
  late_ranks(report);
  spread_waits(report);
  shares_in_words(report);
  std::stable_sort(report.verdicts.begin(), report.verdicts.end(),
                   [](const Verdict& a, const Verdict& b) { return a.share > b.share; });
  if (!report.verdicts.empty()) return;
  const double compute = mean_share(report, Share::kCompute);
  const double between = mean_share(report, Share::kGap);
  if (report.communication_only) {
    report.verdicts.push_back(
        {between, str(percent(between),
                      " of the step is outside of communication; no rank is waited for, and nothing stands out.")});
  } else {
    report.verdicts.push_back({compute, str(percent(compute), " of the step is computation; nothing stands out.")});
  }
}

}  // namespace trireme::trace
