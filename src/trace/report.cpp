#include "trace/report.h"

#include <algorithm>
#include <map>

#include "base/str.h"
#include "profile/lateness.h"
#include "trace/robust.h"
#include "trireme/base/error.h"

namespace trireme::trace {
namespace {

using Shares = std::vector<std::vector<StepShares>>;  // by rank, then step

double part(double of, double whole) { return whole > 0 ? of / whole : 0; }

void fill_ranks(const std::vector<Timeline>& timelines, const Shares& shares, const ReportOptions& options,
                TraceReport& report) {
  std::vector<double> all_steps;
  for (size_t r = 0; r < timelines.size(); ++r) {
    RankReport one;
    one.rank = timelines[r].rank;
    one.source = timelines[r].source;
    one.host = timelines[r].host;
    one.num_steps = static_cast<int64_t>(shares[r].size());
    double total = 0;
    double sums[kNumShares] = {};
    double overlapped = 0;
    std::vector<double> durations;
    for (const StepShares& step : shares[r]) {
      total += static_cast<double>(step.total_ns);
      overlapped += static_cast<double>(step.overlapped_ns);
      for (int s = 0; s < kNumShares; ++s) sums[s] += static_cast<double>(step.share_ns[s]);
      one.flops += step.flops;
      durations.push_back(static_cast<double>(step.total_ns) / 1e6);
    }
    for (int s = 0; s < kNumShares; ++s) one.share[s] = part(sums[s], total);
    one.overlapped = part(overlapped, total);
    const double communicated =
        overlapped + sums[static_cast<size_t>(Share::kExposed)] + sums[static_cast<size_t>(Share::kImbalance)];
    one.hidden = part(overlapped, communicated);
    one.step_ms = median(durations);
    all_steps.insert(all_steps.end(), durations.begin(), durations.end());
    if (options.peak_flops > 0 && total > 0) one.mfu = one.flops / (total / 1e9) / options.peak_flops;
    if (one.num_steps > 0) one.flops /= static_cast<double>(one.num_steps);
    report.flops += one.flops;
    report.mfu += one.mfu / static_cast<double>(timelines.size());
    report.ranks.push_back(std::move(one));
  }
  report.step_ms = median(all_steps);
}

/// A share that is larger by less than this part of the lateness is no cause of it.
constexpr double kExplains = 0.25;

/// What a rank does more of than the middle one of the others, while those wait for it.
std::string cause_of(size_t late, const TraceReport& report) {
  const std::pair<Share, const char*> causes[] = {
      {Share::kCompute, "its computation"},
      {Share::kCopy, "its copies"},
      {Share::kDataWait, "its data loader"},
      {Share::kGap, report.communication_only ? "what it does between collectives"
                    : report.on_device        ? "its launch gaps"
                                              : "code that is not traced"}};
  const RankReport& own = report.ranks[late];
  double most = own.late_ms * kExplains;
  std::string cause;
  for (const auto& [share, text] : causes) {
    const auto s = static_cast<size_t>(share);
    std::vector<double> others;
    for (size_t r = 0; r < report.ranks.size(); ++r) {
      if (r != late) others.push_back(report.ranks[r].share[s] * report.ranks[r].step_ms);
    }
    const double excess = own.share[s] * own.step_ms - median(others);
    if (excess > most) {
      most = excess;
      cause = text;
    }
  }
  return cause;
}

void fill_lateness(const std::vector<Timeline>& timelines, const std::vector<Match>& matches, const Shares& shares,
                   TraceReport& report) {
  for (const Match& match : matches) {
    if (!synchronises(match.op)) continue;
    const Member* last = last_to_come(match, timelines, report.clocks);
    if (last != nullptr) ++report.ranks[last->rank].num_last;
  }
  for (size_t late = 0; late < report.ranks.size(); ++late) {
    double waited = 0;
    double total = 0;
    double steps = 0;
    for (size_t r = 0; r < shares.size(); ++r) {
      if (r == late) continue;
      for (const StepShares& step : shares[r]) {
        waited += static_cast<double>(step.waits_ns[late]);
        total += static_cast<double>(step.total_ns);
        ++steps;
      }
    }
    report.ranks[late].late_ms = part(waited / 1e6, steps);
    report.ranks[late].late_share = part(waited, total);
  }
  for (size_t late = 0; late < report.ranks.size(); ++late) {
    if (report.ranks[late].late_share > 0.01) report.ranks[late].late_cause = cause_of(late, report);
  }
}

void fill_steps(const Shares& shares, TraceReport& report) {
  // By number; ranks that lack one (a file that is cut off) have an empty place.
  std::map<int64_t, StepReport> steps;
  for (size_t r = 0; r < shares.size(); ++r) {
    for (const StepShares& step : shares[r]) {
      StepReport& row = steps[step.number];
      row.number = step.number;
      row.ranks.resize(shares.size());
      row.ranks[r] = step;
    }
  }
  for (auto& [number, step] : steps) report.steps.push_back(std::move(step));
}

/// docs/bandwidth.md: what each link would carry, whatever the algorithm.
double bus_factor(CollectiveOp op, double n) {
  if (op == CollectiveOp::kAllReduce) return 2 * (n - 1) / n;
  if (op == CollectiveOp::kAllGather) return n - 1;  // of the bytes that one rank passes in
  if (op == CollectiveOp::kReduceScatter || op == CollectiveOp::kAllToAll) return (n - 1) / n;
  return op == CollectiveOp::kBroadcast ? 1 : 0;
}

void fill_collectives(const std::vector<Timeline>& timelines, const std::vector<Match>& matches, TraceReport& report) {
  std::map<std::pair<std::string, CollectiveOp>, CollectiveReport> rows;
  std::map<std::pair<std::string, CollectiveOp>, std::vector<double>> durations;
  std::map<std::pair<std::string, CollectiveOp>, std::vector<double>> rates;
  for (const Timeline& timeline : timelines) {
    for (const Call& call : timeline.calls) {
      const auto key = std::pair(timeline.groups[call.group].name, call.op);
      CollectiveReport& row = rows[key];
      row.group = key.first;
      row.op = to_string(key.second);
      ++row.num_calls;
      if (call.bytes_in >= 0) row.bytes += static_cast<double>(call.bytes_in);
      row.total_ms += static_cast<double>(call.end_ns - call.start_ns) / 1e6;
      durations[key].push_back(static_cast<double>(call.end_ns - call.start_ns) / 1e3);
    }
  }
  for (const Match& match : matches) {
    const auto key = std::pair(match.group, match.op);
    int64_t last = INT64_MIN;
    bool aligned = true;
    for (const Member& member : match.members) {
      last = std::max(last, timelines[member.rank].calls[member.call].start_ns);
      aligned = aligned && report.clocks[member.rank].aligned;
    }
    if (!aligned || !synchronises(match.op)) continue;
    for (const Member& member : match.members) {
      const Call& call = timelines[member.rank].calls[member.call];
      rows[key].waited_ms += static_cast<double>(profile::waited_ns(call.start_ns, call.end_ns, last)) / 1e6;
      const Group& group = timelines[member.rank].groups[call.group];
      const double n = group.size > 0 ? static_cast<double>(group.size) : static_cast<double>(match.members.size());
      const auto moved_ns = static_cast<double>(call.end_ns - std::max(last, call.start_ns));
      if (moved_ns > 0 && call.bytes_in > 0)
        rates[key].push_back(static_cast<double>(call.bytes_in) * bus_factor(match.op, n) / moved_ns);
    }
  }
  for (auto& [key, row] : rows) {
    row.median_us = median(durations[key]);
    row.busbw_gb_s = median(rates[key]);
    report.collectives.push_back(std::move(row));
  }
  std::stable_sort(report.collectives.begin(), report.collectives.end(),
                   [](const CollectiveReport& a, const CollectiveReport& b) { return a.total_ms > b.total_ms; });
}

/// Bytes that a rank sends to each other member of a group in one call; 0: nothing, or to one peer only.
double to_each(const Call& call, double n) {
  const auto bytes = static_cast<double>(call.bytes_in);
  switch (call.op) {
    case CollectiveOp::kAllReduce:
      return 2 * bytes / n;
    case CollectiveOp::kAllGather:
      return bytes;
    case CollectiveOp::kReduceScatter:
    case CollectiveOp::kAllToAll:
      return bytes / n;
    default:
      return 0;
  }
}

/// The members of a group as one of them sees it.
struct Members {
  size_t count = 0;           ///< 0: the files do not tell who they are
  std::vector<size_t> known;  ///< the others of which there is a trace, by place
  size_t unknown = 0;
};

/// A group without members in the file is taken for all ranks when its size is theirs, or unknown.
Members members_of(const Group& group, const std::map<int, size_t>& index, size_t self) {
  Members members;
  if (group.ranks.empty() && (group.size < 0 || group.size == static_cast<int64_t>(index.size()))) {
    members.count = index.size();
    for (const auto& [rank, place] : index) {
      if (place != self) members.known.push_back(place);
    }
    return members;
  }
  members.count = group.ranks.size();
  for (const int rank : group.ranks) {
    const auto found = index.find(rank);
    if (found == index.end()) {
      ++members.unknown;
    } else if (found->second != self) {
      members.known.push_back(found->second);
    }
  }
  std::sort(members.known.begin(), members.known.end());
  members.known.erase(std::unique(members.known.begin(), members.known.end()), members.known.end());
  return members;
}

void fill_matrix(const std::vector<Timeline>& timelines, TraceReport& report) {
  const size_t n = timelines.size();
  std::map<int, size_t> index;
  for (size_t r = 0; r < n; ++r) index[timelines[r].rank] = r;
  report.matrix_bytes.assign(n, std::vector<double>(n, 0));
  for (size_t r = 0; r < n; ++r) {
    // Once for each group, since one of a million ranks may have a million calls.
    std::vector<Members> groups;
    for (const Group& group : timelines[r].groups) groups.push_back(members_of(group, index, r));
    for (const Call& call : timelines[r].calls) {
      if (call.bytes_in <= 0 || call.op == CollectiveOp::kBarrier || call.op == CollectiveOp::kRecv) continue;
      const Members& members = groups[call.group];
      const auto bytes = static_cast<double>(call.bytes_in);
      if (call.op == CollectiveOp::kSend) {
        const auto to = index.find(call.destination);
        if (to == index.end()) {
          report.unplaced_bytes += bytes;
        } else if (to->second != r) {
          report.matrix_bytes[r][to->second] += bytes;
        }
        continue;
      }
      const bool broadcast = call.op == CollectiveOp::kBroadcast;
      if (broadcast && call.source >= 0 && call.source != timelines[r].rank && members.count > 0) continue;
      const double each = broadcast ? bytes : to_each(call, static_cast<double>(std::max<size_t>(members.count, 1)));
      if (members.count == 0 || each == 0 || (broadcast && call.source < 0)) {
        report.unplaced_bytes += bytes;
        continue;
      }
      for (const size_t to : members.known) report.matrix_bytes[r][to] += each;
      report.unplaced_bytes += each * static_cast<double>(members.unknown);
    }
  }
}

void fill_operators(const std::vector<Timeline>& timelines, TraceReport& report) {
  std::map<std::string, OperatorReport> rows;
  for (const Timeline& timeline : timelines) {
    for (const OperatorCall& call : timeline.operators) {
      OperatorReport& row = rows[timeline.names[call.name]];
      row.name = timeline.names[call.name];
      ++row.num_calls;
      row.flops += call.flops;
    }
  }
  for (auto& [name, row] : rows) report.operators.push_back(std::move(row));
  std::stable_sort(report.operators.begin(), report.operators.end(),
                   [](const OperatorReport& a, const OperatorReport& b) { return a.flops > b.flops; });
}

void fill_notices(const std::vector<Timeline>& timelines, TraceReport& report) {
  for (const Timeline& timeline : timelines) {
    for (const std::string& notice : timeline.notices) report.notices.push_back(str(timeline.source, ": ", notice));
  }
  int world = -1;
  for (const Timeline& timeline : timelines) world = std::max(world, timeline.world_size);
  if (world > static_cast<int>(timelines.size())) {
    report.notices.push_back(str("the job has ", world, " ranks, and ", timelines.size(),
                                 timelines.size() == 1 ? " was" : " were",
                                 " given: who waits for the others is not known. Give the files of all ranks."));
  }
  for (const Timeline& timeline : timelines) {
    if (!timeline.steps.empty() && timeline.steps.front().number < 0) {
      report.notices.push_back(str(timeline.source, ": knows no steps, so the whole of it counts as one"));
    }
  }
}

}  // namespace

TraceReport make_report(std::vector<Timeline> timelines, const ReportOptions& options, ReportDetails* details) {
  if (timelines.empty())
    throw Error(ErrorKind::kInvalidArgument, "[trace.report] no trace was given; at least one is required.");
  TraceReport report;
  report.notices = options.notices;
  for (const Timeline& timeline : timelines) {
    report.on_device = report.on_device || timeline.on_device;
    report.communication_only = report.communication_only || timeline.communication_only;
  }
  const std::vector<Match> matches = match_calls(timelines);
  report.clocks = fit_clocks(timelines, matches);
  report.clock_lines = describe_clocks(timelines, report.clocks);
  apply_clocks(report.clocks, timelines);
  const std::vector<std::vector<Wait>> waits = waits_of(timelines, matches, report.clocks);
  Shares shares;
  std::vector<std::vector<Segment>> segments;
  for (size_t r = 0; r < timelines.size(); ++r) {
    segments.push_back(segments_of(timelines[r], waits[r]));
    shares.push_back(shares_of(timelines[r], segments.back(), timelines.size()));
  }
  fill_ranks(timelines, shares, options, report);
  fill_lateness(timelines, matches, shares, report);
  fill_steps(shares, report);
  fill_collectives(timelines, matches, report);
  fill_matrix(timelines, report);
  fill_operators(timelines, report);
  fill_notices(timelines, report);
  judge(report);
  if (details != nullptr) *details = {std::move(timelines), std::move(segments)};
  return report;
}

}  // namespace trireme::trace
