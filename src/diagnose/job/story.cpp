#include "diagnose/job/story.h"

#include <algorithm>

namespace trireme::diagnose {

void Story::tell_world_size(int64_t ranks) {
  constexpr int64_t kMostRanks = 1 << 20;
  // Of several that are told the largest: groups within the job are smaller than it.
  if (ranks < 1 || ranks > kMostRanks) return;
  world_size = std::max(world_size.value_or(0), static_cast<int>(ranks));
}

void Story::add_waiting(Waiting one) {
  if (waiting.size() < kMost && waiting_keys_.emplace(one.rank, one.call, one.op).second)
    waiting.push_back(std::move(one));
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

void Story::forget(std::string_view file) {
  const auto of_file = [file](const auto& one) { return one.evidence.file == file; };
  std::erase_if(ends, of_file);
  std::erase_if(waiting, of_file);
  std::erase_if(progress, of_file);
  std::erase_if(absent, of_file);
  std::erase_if(clashes, of_file);
  std::erase_if(oom_kills, of_file);
  std::erase_if(last_words, of_file);
  std::erase_if(findings,
                [file](const Finding& one) { return !one.evidence.empty() && one.evidence.front().file == file; });
}

void Story::add(Finding finding) {
  for (Finding& known : findings) {
    if (known.code != finding.code || known.cause != finding.cause || known.host != finding.host) continue;
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
