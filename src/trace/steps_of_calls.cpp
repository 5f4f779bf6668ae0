#include <algorithm>
#include <map>

#include "trace/timeline.h"

namespace trireme::trace {

std::vector<Step> steps_of_calls(const std::vector<Call>& calls, bool wrapped) {
  std::vector<Step> steps;
  std::map<int64_t, std::pair<int64_t, int64_t>> range;  // first start, last end
  for (const Call& call : calls) {
    auto [at, inserted] = range.try_emplace(call.step, call.start_ns, call.end_ns);
    if (inserted) continue;
    at->second.first = std::min(at->second.first, call.start_ns);
    at->second.second = std::max(at->second.second, call.end_ns);
  }
  while (range.size() > 1 && range.begin()->first <= 0) range.erase(range.begin());
  if (wrapped && range.size() > 1) range.erase(range.begin());  // its beginning was overwritten
  for (auto at = range.begin(); at != range.end(); ++at) {
    const auto next = std::next(at);
    const bool last = next == range.end();
    const int64_t end = last ? at->second.second : std::max(at->second.first, next->second.first);
    steps.push_back({at->first == 0 ? -1 : at->first, at->second.first, end});
  }
  // The last one has no next: it would be shorter than the others by the time between two steps.
  if (steps.size() > 1) steps.pop_back();
  return steps;
}

}  // namespace trireme::trace
