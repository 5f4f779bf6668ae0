#include "plan/smallest_change.h"

#include <limits>

namespace trireme::plan {
namespace {

int count_changes(const Plan& a, const Plan& b) {
  return (a.tp != b.tp) + (a.pp != b.pp) + (a.cp != b.cp) + (a.ep != b.ep) + (a.micro_batch != b.micro_batch) +
         (a.virtual_stages != b.virtual_stages || a.schedule != b.schedule) + (a.stage_layers != b.stage_layers) +
         (a.recompute != b.recompute) + (a.zero_stage != b.zero_stage);
}

}  // namespace

std::optional<SmallestChange> smallest_change(const ModelNumbers& model, const MachineNumbers& machine,
                                              const TrainingNumbers& training, int64_t devices,
                                              const Constraints& constraints, const Plan& base, int64_t most_devices) {
  for (int64_t number = devices; number <= most_devices; number *= 2) {
    const SearchResult result =
        search(model, machine, training, number, constraints, std::numeric_limits<size_t>::max());
    std::optional<SmallestChange> least;
    // Fastest first, so the first of equally many changes is the fastest.
    for (const Candidate& candidate : result.best) {
      const int changes = count_changes(base, candidate.plan);
      if (!least || changes < least->changes) least = {candidate, changes, number};
    }
    if (least) return least;
  }
  return std::nullopt;
}

}  // namespace trireme::plan
