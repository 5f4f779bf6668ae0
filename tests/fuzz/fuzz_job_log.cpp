// Oracle: the sanitizers, and that memory and the number of findings stay bounded. Lines of the readers of a job's logs, then the reasoning.
#include <cstdint>
#include <cstdlib>

#include "diagnose/job/job_log.h"
#include "diagnose/job/reason.h"
#include "diagnose/line_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme::diagnose;
  Story story;
  Report report;
  const auto reader = make_job_log_reader(story);
  reader->begin_file("logs/rank1.err");
  split_lines({reinterpret_cast<const char*>(data), size}, [&](const Line& line) {
    reader->line(line);
    return true;
  });
  (void)reader->end_file();
  reason(story, {}, report);
  constexpr size_t kMost = 100'000;
  if (report.findings.size() > kMost) std::abort();
  for (const Finding& finding : report.findings) {
    if (finding.code.empty() || finding.cause.empty() || !(finding.confidence >= 0 && finding.confidence <= 1))
      std::abort();
  }
  return 0;
}
