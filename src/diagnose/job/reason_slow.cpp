#include <algorithm>
#include <map>
#include <string_view>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/reason.h"
#include "profile/straggler.h"

namespace trireme::diagnose {
namespace {

const char* advice_of(std::string_view cause) {
  if (cause == "data loading") {
    return "Prefetch, use more loader workers there, or look at that host's storage. 'trireme trace report' on the run "
           "folder shows each step.";
  }
  if (cause == "communication") {
    return "It comes out of the call before later than the others: look at what else runs on its cores, and at its "
           "links with 'trireme doctor --links'.";
  }
  return "Compare clocks, temperature, other programs and the amount of work on that rank. Where it waits for data, "
         "mark "
         "that with trireme::data_wait(); docs/howto/slow.md goes on from here.";
}

}  // namespace

std::vector<Finding> slow_ranks_of(const Story& story) {
  std::vector<profile::TraceSnapshot> traces;
  for (const OwnTrace& one : story.own_traces) {
    // Of several traces of a rank, which another folder of the same job may hold, the first.
    const bool known =
        std::any_of(traces.begin(), traces.end(), [&](const auto& trace) { return trace.rank == one.trace.rank; });
    if (!known) traces.push_back(one.trace);
  }
  std::map<int, std::pair<profile::StragglerNews, bool>> slow;  // the last time that it was; until the end
  for (const profile::StragglerNews& news : profile::StragglerWatch({}).look(traces)) {
    if (news.slow) slow[news.rank].first = news;
    slow[news.rank].second = news.slow;
  }
  std::vector<Finding> findings;
  for (const auto& [rank, seen] : slow) {
    const auto& [news, until_the_end] = seen;
    Finding finding;
    finding.code = "rank.slow";
    finding.severity = Severity::kWarning;
    finding.confidence = until_the_end ? 0.8 : 0.5;
    finding.ranks = {rank};
    finding.cause = str(excerpt(news.words(false)), until_the_end ? "; it stayed so" : "; later it was not");
    finding.advice = advice_of(news.cause());
    for (const OwnTrace& one : story.own_traces) {
      if (one.trace.rank != rank) continue;
      add_evidence(finding, {one.file, 0, str("steps ", news.first_step, " to ", news.last_step)});
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace trireme::diagnose
