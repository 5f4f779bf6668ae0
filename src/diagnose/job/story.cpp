#include "diagnose/job/story.h"

#include <algorithm>

namespace trireme::diagnose {

namespace {

/// The same sentence with a value behind it.
bool adds_to(std::string_view cause, std::string_view longer) {
  return longer.size() > cause.size() && longer.starts_with(cause) && longer.substr(cause.size()).starts_with(": ");
}

}  // namespace

void Story::tell_world_size(int64_t ranks) {
  constexpr int64_t kMostRanks = 1 << 20;
  // Of several that are told the largest: groups within the job are smaller than it.
  if (ranks < 1 || ranks > kMostRanks) return;
  world_size = std::max(world_size.value_or(0), static_cast<int>(ranks));
}

void Story::add_waiting(Waiting one) {
  // A rank waits in its first call; those that it had issued behind it time out as well.
  const auto known = waiting_at_.find({one.rank, one.group});
  if (known != waiting_at_.end()) {
    Waiting& first = waiting[known->second];
    if (one.call < first.call) first = std::move(one);
  } else if (waiting.size() < kMost) {
    waiting_at_[{one.rank, one.group}] = waiting.size();
    waiting.push_back(std::move(one));
  }
}

void Story::add_progress(Progress one) {
  const auto known = progress_at_.find({one.rank, one.group});
  if (known != progress_at_.end()) {
    Progress& old = progress[known->second];
    if (one.enqueued >= old.enqueued) old = std::move(one);
  } else if (progress.size() < kMost) {
    progress_at_[{one.rank, one.group}] = progress.size();
    progress.push_back(std::move(one));
  }
}

void Story::add_own_trace(OwnTrace one) {
  const size_t records = one.trace.records.size();
  if (own_traces.size() >= kMostOwnTraces || num_own_records_ + records > kMostOwnRecords) return;
  num_own_records_ += records;
  own_traces.push_back(std::move(one));
}

void Story::forget(std::string_view file) {
  const auto of_file = [file](const auto& one) { return one.evidence.file == file; };
  std::erase_if(ends, of_file);
  std::erase_if(waiting, of_file);
  std::erase_if(progress, of_file);
  std::erase_if(absent, of_file);
  std::erase_if(hangs, of_file);
  std::erase_if(clashes, of_file);
  std::erase_if(oom_kills, of_file);
  std::erase_if(last_words, of_file);
  std::erase_if(findings,
                [file](const Finding& one) { return !one.evidence.empty() && one.evidence.front().file == file; });
  progress_at_.clear();
  for (size_t i = 0; i < progress.size(); ++i) progress_at_[{progress[i].rank, progress[i].group}] = i;
  waiting_at_.clear();
  for (size_t i = 0; i < waiting.size(); ++i) waiting_at_[{waiting[i].rank, waiting[i].group}] = i;
}

void Story::add(Finding finding) {
  for (Finding& known : findings) {
    if (known.code != finding.code || !(known.host == finding.host || known.host.empty() || finding.host.empty()))
      continue;
    const bool says_more = adds_to(known.cause, finding.cause);
    if (known.cause != finding.cause && !says_more && !adds_to(finding.cause, known.cause)) continue;
    if (says_more) known.cause = std::move(finding.cause);
    if (known.host.empty()) known.host = std::move(finding.host);
    known.confidence = std::max(known.confidence, finding.confidence);
    for (Evidence& evidence : finding.evidence) add_evidence(known, std::move(evidence));
    for (const int rank : finding.ranks) {
      if (std::find(known.ranks.begin(), known.ranks.end(), rank) == known.ranks.end()) known.ranks.push_back(rank);
    }
    std::sort(known.ranks.begin(), known.ranks.end());
    return;
  }
  constexpr size_t kMostFindings = 500;
  if (findings.size() < kMostFindings) findings.push_back(std::move(finding));
}

}  // namespace trireme::diagnose
