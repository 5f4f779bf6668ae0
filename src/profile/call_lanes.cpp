#include "profile/call_lanes.h"

#include <algorithm>

namespace trireme::profile {

Lanes sort_into_lanes(const TraceSnapshot& trace) {
  std::vector<GroupKey> groups;
  for (size_t g = 0; g < trace.groups.size(); ++g) {
    GroupKey key = {.name = trace.groups[g], .ranks = trace.group_ranks[g]};
    key.occurrence = static_cast<int>(std::count_if(groups.begin(), groups.end(), [&](const GroupKey& other) {
      return other.name == key.name && other.ranks == key.ranks;
    }));
    groups.push_back(std::move(key));
  }
  Lanes lanes;
  for (const TraceRecord& record : trace.records) {
    if (record.group >= groups.size()) continue;
    LaneKey key = {.group = groups[record.group]};
    if (op_of(record) == OpKind::kSend || op_of(record) == OpKind::kRecv) {
      const auto peer = static_cast<size_t>(record.root);
      if (record.root < 0 || peer >= key.group.ranks.size()) continue;
      key.receiving = op_of(record) == OpKind::kRecv;
      key.sender = key.receiving ? key.group.ranks[peer] : trace.rank;
      key.receiver = key.receiving ? trace.rank : key.group.ranks[peer];
    }
    lanes[key].push_back(&record);
  }
  for (auto& [key, lane] : lanes) {
    std::stable_sort(lane.begin(), lane.end(),
                     [](const TraceRecord* a, const TraceRecord* b) { return a->call < b->call; });
  }
  return lanes;
}

uint64_t last_entered(const Lane& lane) {
  uint64_t last = 0;
  for (const TraceRecord* record : lane) {
    if (!is_in(*record, CallState::kQueued)) last = std::max(last, record->call);
  }
  return last;
}

uint64_t last_finished(const Lane& lane) {
  uint64_t last = 0;
  for (const TraceRecord* record : lane) {
    if (is_in(*record, CallState::kFinished)) last = std::max(last, record->call);
  }
  return last;
}

const TraceRecord* find_call(const Lane& lane, uint64_t call) {
  const auto found =
      std::lower_bound(lane.begin(), lane.end(), call, [](const TraceRecord* a, uint64_t b) { return a->call < b; });
  return found != lane.end() && (*found)->call == call ? *found : nullptr;
}

}  // namespace trireme::profile
