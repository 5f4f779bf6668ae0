// Oracle: the sanitizers; times that add up; and that merged text is one that the strict reader takes. Whatever the bytes are.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trace/read_timeline.h"
#include "trace/report.h"
#include "trace/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme::trace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // Two ranks out of one input, so that matching and clocks see something too.
  std::vector<Timeline> timelines;
  for (int rank = 0; rank < 2; ++rank) {
    Timeline timeline = read_timeline(bytes_of(text.substr(rank == 0 ? 0 : size / 3)), "fuzz.json");
    for (const Span& span : timeline.spans) {
      if (span.end_ns < span.start_ns || span.lane >= timeline.lanes.size() || span.name >= timeline.names.size())
        std::abort();
    }
    for (const Call& call : timeline.calls) {
      if (call.group >= timeline.groups.size() || call.end_ns < call.start_ns) std::abort();
    }
    timeline.rank = rank;
    timelines.push_back(std::move(timeline));
  }
  ReportDetails details;
  const TraceReport report = make_report(std::move(timelines), {.peak_flops = 1e12}, &details);
  for (const StepReport& step : report.steps) {
    for (const StepShares& shares : step.ranks) {
      int64_t sum = 0;
      for (const int64_t share : shares.share_ns) sum += share;
      if (sum != shares.total_ns) std::abort();
    }
  }
  (void)report_text(report, true);
  (void)report_html(report, details);
  return 0;
}
