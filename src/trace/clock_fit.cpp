#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/str.h"
#include "profile/lateness.h"
#include "trace/match.h"
#include "trace/robust.h"

namespace trireme::trace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kFewest = 3;            // collectives that an offset is believed from
constexpr size_t kSlopePoints = 300;  // 45,000 slopes
constexpr double kMaxDrift = 1e-3;    // no quartz is that bad
constexpr double kShortest = 1e9;     // ns: below, a drift cannot be told from noise

// Times are relative to a base, so that a double holds them to the ns.
struct Sample {
  double time = 0;        // aligned, of the others' end
  double difference = 0;  // this rank's end minus theirs
  double lowest = 0;      // offsets that causality allows
  double highest = 0;
};

/// The lower of the two middle ones for an even number: a call that ends late is common, one that ends early is not possible.
double middle(std::vector<double> ends) {
  const auto at = ends.begin() + static_cast<std::ptrdiff_t>((ends.size() - 1) / 2);
  std::nth_element(ends.begin(), at, ends.end());
  return *at;
}

std::vector<Sample> samples_of(size_t rank, const std::vector<Timeline>& timelines, const std::vector<Match>& matches,
                               const std::vector<ClockFit>& fits, int64_t base) {
  std::vector<Sample> samples;
  for (const Match& match : matches) {
    if (!synchronises(match.op)) continue;
    const Call* own = nullptr;
    std::vector<double> ends;
    double last_start = -kInfinity;
    double first_end = kInfinity;
    for (const Member& member : match.members) {
      const Call& call = timelines[member.rank].calls[member.call];
      if (call.open) continue;
      if (member.rank == rank) own = &call;
      if (member.rank == rank || !fits[member.rank].aligned) continue;
      const auto start = static_cast<double>(aligned_time(fits[member.rank], call.start_ns) - base);
      const auto end = static_cast<double>(aligned_time(fits[member.rank], call.end_ns) - base);
      ends.push_back(end);
      last_start = std::max(last_start, start);
      first_end = std::min(first_end, end);
    }
    if (own == nullptr || ends.empty()) continue;
    const double end = middle(ends);
    const auto own_start = static_cast<double>(own->start_ns - base);
    const auto own_end = static_cast<double>(own->end_ns - base);
    samples.push_back({end, own_end - end, own_start - first_end, own_end - last_start});
  }
  return samples;
}

double theil_sen(const std::vector<Sample>& samples) {
  std::vector<const Sample*> chosen;
  const size_t stride = std::max<size_t>(1, samples.size() / kSlopePoints);
  for (size_t i = 0; i < samples.size(); i += stride) chosen.push_back(&samples[i]);
  std::vector<double> slopes;
  for (size_t i = 0; i < chosen.size(); ++i) {
    for (size_t j = i + 1; j < chosen.size(); ++j) {
      const double time = chosen[j]->time - chosen[i]->time;
      if (time != 0) slopes.push_back((chosen[j]->difference - chosen[i]->difference) / time);
    }
  }
  return median(std::move(slopes));
}

/// Differences left when offset and drift are taken away, in us, without sign.
std::vector<double> residuals(const std::vector<Sample>& samples, double offset, double drift, double origin) {
  std::vector<double> left;
  left.reserve(samples.size());
  for (const Sample& one : samples)
    left.push_back(std::abs(one.difference - offset - drift * (one.time - origin)) / 1e3);
  return left;
}

/// Whether nearly all collectives are possible with that offset.
bool possible(const std::vector<Sample>& samples, double offset) {
  const auto fits = std::count_if(samples.begin(), samples.end(), [offset](const Sample& one) {
    return one.lowest <= offset && offset <= one.highest;
  });
  return static_cast<double>(fits) >= 0.95 * static_cast<double>(samples.size());
}

void fill_residuals(const std::vector<Sample>& samples, int64_t base, ClockFit& fit) {
  const auto left = residuals(samples, fit.offset_ns, fit.drift, static_cast<double>(fit.origin_ns - base));
  fit.residual_median_us = median(left);
  fit.residual_p95_us = quantile(left, 0.95);
  fit.num_matches = static_cast<int>(samples.size());
}

ClockFit fit_samples(const std::vector<Sample>& samples, int64_t base) {
  ClockFit fit;
  std::vector<double> differences;
  double earliest = kInfinity;
  double latest = -kInfinity;
  double lowest = -kInfinity;
  double highest = kInfinity;
  for (const Sample& one : samples) {
    differences.push_back(one.difference);
    earliest = std::min(earliest, one.time);
    latest = std::max(latest, one.time);
    lowest = std::max(lowest, one.lowest);
    highest = std::min(highest, one.highest);
  }
  fit.aligned = true;
  const double origin = std::floor(earliest + (latest - earliest) / 2);
  fit.offset_ns = median(differences);
  const double span = latest - earliest;
  if (span >= kShortest && samples.size() >= 8) {
    const double drift = theil_sen(samples);
    const double before = median(residuals(samples, fit.offset_ns, 0, origin));
    std::vector<double> straight;
    for (const Sample& one : samples) straight.push_back(one.difference - drift * (one.time - origin));
    const double offset = median(straight);
    const double after = median(residuals(samples, offset, drift, origin));
    // A drift is believed when it explains most of what an offset alone leaves.
    if (std::abs(drift) < kMaxDrift && after < 0.7 * before) {
      fit.drift = drift;
      fit.offset_ns = offset;
    }
  }
  if (fit.drift == 0 && lowest <= highest) fit.offset_ns = std::clamp(fit.offset_ns, lowest, highest);
  fit.origin_ns = base + static_cast<int64_t>(origin);
  fill_residuals(samples, base, fit);
  return fit;
}

/// The fit of a rank on the same host, when the calls do not speak against it.
const ClockFit* same_host(size_t rank, const std::vector<Timeline>& timelines, const std::vector<ClockFit>& fits,
                          const std::vector<Sample>& samples) {
  if (timelines[rank].host.empty()) return nullptr;
  for (size_t other = 0; other < timelines.size(); ++other) {
    if (other == rank || !fits[other].aligned || timelines[other].host != timelines[rank].host) continue;
    return possible(samples, fits[other].offset_ns) ? &fits[other] : nullptr;
  }
  return nullptr;
}

std::string in_ms(double ns) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.3f ms", std::abs(ns) / 1e6);
  return text;
}

}  // namespace

const Member* last_to_come(const Match& match, const std::vector<Timeline>& timelines,
                           const std::vector<ClockFit>& fits) {
  std::vector<int64_t> arrivals;
  std::vector<const Member*> members;
  for (const Member& member : match.members) {
    if (!fits[member.rank].aligned) continue;
    arrivals.push_back(timelines[member.rank].calls[member.call].start_ns);
    members.push_back(&member);
  }
  return members.size() < 2 ? nullptr : members[profile::last_to_come(arrivals)];
}

int64_t aligned_time(const ClockFit& fit, int64_t time_ns) {
  if (fit.offset_ns == 0 && fit.drift == 0) return time_ns;
  // Samples are at the others' times, so the drift counts from there too.
  const double since = (static_cast<double>(time_ns - fit.origin_ns) - fit.offset_ns) / (1 + fit.drift);
  // Of damaged files offsets may be absurd; what is aligned stays within what can be subtracted.
  constexpr int64_t kLatest = INT64_MAX / 2;
  int64_t aligned = 0;
  const int64_t by = std::llround(std::clamp(fit.offset_ns + fit.drift * since, -9e18, 9e18));
  if (__builtin_sub_overflow(time_ns, by, &aligned)) return by > 0 ? -kLatest : kLatest;
  return std::clamp(aligned, -kLatest, kLatest);
}

std::vector<ClockFit> fit_clocks(const std::vector<Timeline>& timelines, const std::vector<Match>& matches) {
  std::vector<ClockFit> fits(timelines.size());
  if (timelines.empty()) return fits;
  fits[0].aligned = fits[0].same_clock = true;
  const int64_t base = timelines[0].first_ns;
  // Whoever shares collectives with those that are aligned already comes next: pipelines and meshes have no group of all ranks.
  bool more = true;
  while (more) {
    more = false;
    for (size_t rank = 1; rank < timelines.size(); ++rank) {
      if (fits[rank].aligned) continue;
      const std::vector<Sample> samples = samples_of(rank, timelines, matches, fits, base);
      if (const ClockFit* neighbour = same_host(rank, timelines, fits, samples)) {
        fits[rank] = *neighbour;
        fits[rank].same_clock = true;
        fill_residuals(samples, base, fits[rank]);
      } else if (samples.size() >= kFewest) {
        fits[rank] = fit_samples(samples, base);
      } else {
        continue;
      }
      more = true;
    }
  }
  return fits;
}

void apply_clocks(const std::vector<ClockFit>& fits, std::vector<Timeline>& timelines) {
  for (size_t rank = 0; rank < timelines.size(); ++rank) {
    const ClockFit& fit = fits[rank];
    if (!fit.aligned || (fit.offset_ns == 0 && fit.drift == 0)) continue;
    Timeline& timeline = timelines[rank];
    const auto move = [&fit](int64_t& time) { time = aligned_time(fit, time); };
    move(timeline.first_ns), move(timeline.last_ns);
    for (Span& span : timeline.spans) move(span.start_ns), move(span.end_ns);
    for (Call& call : timeline.calls) move(call.start_ns), move(call.end_ns);
    for (Step& step : timeline.steps) move(step.start_ns), move(step.end_ns);
    for (OperatorCall& call : timeline.operators) move(call.time_ns);
  }
}

std::vector<std::string> describe_clocks(const std::vector<Timeline>& timelines, const std::vector<ClockFit>& fits) {
  std::vector<std::string> lines;
  if (timelines.size() < 2) return lines;
  bool one_host = true;
  double worst = 0;
  for (const ClockFit& fit : fits) {
    one_host = one_host && fit.same_clock && fit.offset_ns == 0;
    worst = std::max(worst, fit.residual_median_us);
  }
  if (one_host) {
    return {str("clocks: all ranks are on host ", timelines[0].host,
                ", nothing to correct; ranks leave a collective within ", static_cast<int64_t>(std::ceil(worst)),
                " us of each other (median of the worst rank)")};
  }
  for (size_t rank = 1; rank < timelines.size(); ++rank) {
    const ClockFit& fit = fits[rank];
    const std::string who = str("clock of rank ", timelines[rank].rank, ": ");
    if (!fit.aligned) {
      lines.push_back(
          who +
          "not aligned: fewer than 3 collectives join it to the others, so nothing is said about who waits for it");
      continue;
    }
    if (fit.same_clock) {
      lines.push_back(str(who, "that of its host ", timelines[rank].host));
      continue;
    }
    char text[200];
    std::snprintf(text, sizeof(text), "%s %s, drift %.1f ppm; residual %.1f us, p95 %.1f us, over %d collectives",
                  in_ms(fit.offset_ns).c_str(), fit.offset_ns >= 0 ? "ahead" : "behind", fit.drift * 1e6,
                  fit.residual_median_us, fit.residual_p95_us, fit.num_matches);
    lines.push_back(who + text);
  }
  return lines;
}

}  // namespace trireme::trace
