#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "base/str.h"
#include "trace/report.h"
#include "trace/report_page.h"
#include "trireme/base/error.h"

namespace trireme::trace {
namespace {

using Json = nlohmann::ordered_json;

/// Of one rank; a page of 64 ranks then has some ten MB, which browsers take.
constexpr size_t kMaxStretches = 8000;
constexpr size_t kMaxSpans = 3000;
constexpr size_t kMaxRows = 8;
constexpr size_t kMaxRanks = 64;
constexpr size_t kMaxSteps = 5000;

/// Shares as the page draws them: those of Share, and computation with communication beside it.
int colour_of(const Segment& segment) { return segment.overlapped ? kNumShares : static_cast<int>(segment.share); }

double us(int64_t ns, int64_t origin) { return static_cast<double>(ns - origin) / 1e3; }

/// Stretches shorter than what can be drawn are put together under the share that fills most of the place.
Json strip_of(const std::vector<Segment>& segments, int64_t first, int64_t last) {
  Json out = Json::array();
  const auto add = [&out, first](int64_t start, int64_t end, int colour) {
    out.push_back(us(start, first));
    out.push_back(static_cast<double>(end - start) / 1e3);
    out.push_back(colour);
  };
  if (segments.size() <= kMaxStretches) {
    for (const Segment& one : segments) add(one.start_ns, one.end_ns, colour_of(one));
    return out;
  }
  const int64_t width = std::max<int64_t>(1, (last - first) / static_cast<int64_t>(kMaxStretches));
  std::array<int64_t, kNumShares + 1> filled{};
  int64_t place = -1;
  const auto flush = [&] {
    const auto most = std::max_element(filled.begin(), filled.end());
    const int64_t gap = width - std::min(width, *most);
    if (*most > 0 && *most >= gap)
      add(first + place * width, first + (place + 1) * width, static_cast<int>(most - filled.begin()));
    filled = {};
  };
  for (const Segment& one : segments) {
    int64_t at = one.start_ns;
    while (at < one.end_ns) {
      const int64_t now = (at - first) / width;
      if (now != place) {
        flush();
        place = now;
      }
      const int64_t end = std::min(one.end_ns, first + (now + 1) * width);
      filled[static_cast<size_t>(colour_of(one))] += end - at;
      at = end;
    }
  }
  flush();
  return out;
}

/// The longest spans with their names, in rows: a lane has as many as its calls are nested, kMaxRows in all.
Json spans_of(const Timeline& timeline, int64_t first, std::vector<std::string>& names) {
  std::vector<const Span*> chosen;
  for (const Span& span : timeline.spans) chosen.push_back(&span);
  if (chosen.size() > kMaxSpans) {
    std::nth_element(chosen.begin(), chosen.begin() + kMaxSpans, chosen.end(),
                     [](const Span* a, const Span* b) { return a->end_ns - a->start_ns > b->end_ns - b->start_ns; });
    chosen.resize(kMaxSpans);
  }
  std::sort(chosen.begin(), chosen.end(), [](const Span* a, const Span* b) {
    return a->start_ns != b->start_ns ? a->start_ns < b->start_ns : a->end_ns > b->end_ns;
  });
  std::map<uint16_t, std::vector<int64_t>> open;  // ends, by lane
  std::map<std::pair<uint16_t, size_t>, size_t> rows;
  std::map<uint32_t, size_t> name_index;
  Json out = Json::array();
  for (const Span* span : chosen) {
    std::vector<int64_t>& ends = open[span->lane];
    while (!ends.empty() && ends.back() <= span->start_ns) ends.pop_back();
    const size_t depth = ends.size();
    ends.push_back(span->end_ns);
    const auto row = rows.try_emplace({span->lane, depth}, rows.size()).first->second;
    if (row >= kMaxRows) continue;
    const auto [name, added] = name_index.try_emplace(span->name, names.size());
    if (added) names.push_back(timeline.names.empty() ? std::string{} : timeline.names[span->name].substr(0, 200));
    const int colour = span->activity == Activity::kCommunication ? static_cast<int>(Share::kExposed)
                       : span->activity == Activity::kCopy        ? static_cast<int>(Share::kCopy)
                       : span->activity == Activity::kDataWait    ? static_cast<int>(Share::kDataWait)
                                                                  : static_cast<int>(Share::kCompute);
    for (const double value : {us(span->start_ns, first), static_cast<double>(span->end_ns - span->start_ns) / 1e3})
      out.push_back(value);
    for (const size_t value : {row, name->second, static_cast<size_t>(colour)}) out.push_back(value);
  }
  return out;
}

/// "<" would let a name end the script.
std::string for_script(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

std::string report_html(const TraceReport& report, const ReportDetails& details) {
  int64_t first = INT64_MAX;
  int64_t last = INT64_MIN;
  for (const Timeline& timeline : details.timelines) {
    if (timeline.spans.empty()) continue;
    first = std::min(first, timeline.first_ns);
    last = std::max(last, timeline.last_ns);
  }
  if (first > last) first = last = 0;
  std::vector<std::string> names;
  Json timeline = Json::array();
  for (size_t r = 0; r < std::min(kMaxRanks, details.timelines.size()); ++r) {
    Json steps = Json::array();
    const std::vector<Step>& all = details.timelines[r].steps;
    for (const Step& step : std::span(all).first(std::min(all.size(), kMaxSteps))) {
      steps.push_back(step.number);
      steps.push_back(us(step.start_ns, first));
      steps.push_back(static_cast<double>(step.end_ns - step.start_ns) / 1e3);
    }
    timeline.push_back({{"rank", report.ranks[r].rank},
                        {"strip", strip_of(details.segments[r], first, last)},
                        {"spans", spans_of(details.timelines[r], first, names)},
                        {"steps", std::move(steps)}});
  }
  std::vector<std::string> shares;
  for (int s = 0; s < kNumShares; ++s) shares.push_back(share_name(static_cast<Share>(s), report));
  // The page shows no table of steps, only how many there are.
  TraceReport shown = report;
  shown.steps.resize(std::min<size_t>(1, shown.steps.size()));
  if (report.steps.size() > kMaxSteps)
    shown.notices.push_back(str("the time line has the first ", kMaxSteps, " of ", report.steps.size(), " steps"));
  Json data = {{"report", Json::parse(report_json(shown))},
               {"num_steps", report.steps.size()},
               {"timeline", std::move(timeline)},
               {"length_us", us(last, first)}};
  data["names"] = names;
  data["share_names"] = shares;
  const std::string page = kReportPage;
  const std::string mark = "/*DATA*/null";
  const size_t at = page.find(mark);
  TRIREME_CHECK(at != std::string::npos, "the page has a place for its data");
  return page.substr(0, at) + for_script(data.dump(-1, ' ', false, Json::error_handler_t::replace)) +
         page.substr(at + mark.size());
}

}  // namespace trireme::trace
