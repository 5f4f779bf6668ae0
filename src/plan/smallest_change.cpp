#include "plan/smallest_change.h"

#include <algorithm>
#include <limits>

namespace trireme::plan {
namespace {

int count_changes(const Plan& a, const Plan& b) {
  return (a.tp != b.tp) + (a.pp != b.pp) + (a.cp != b.cp) + (a.ep != b.ep) + (a.micro_batch != b.micro_batch) +
         (a.virtual_stages != b.virtual_stages || a.schedule != b.schedule) + (a.stage_layers != b.stage_layers) +
         (a.recompute != b.recompute) + (a.zero_stage != b.zero_stage);
}

/// Fewer devices than this cannot even hold weights, gradients and optimizer state, however they are split.
int64_t least_devices(const ModelNumbers& model, const MachineNumbers& machine, const TrainingNumbers& training,
                      const Constraints& constraints) {
  double parameters = 0;
  for (int i = 0; i < model.num_kinds && !model.layers_before.empty(); ++i) {
    const LayerNumbers& layer = model.kinds[i];
    parameters += model.layers_before.back()[i] * (layer.split + layer.replicated + layer.expert_weights);
  }
  const Bytes each = training.weight_bytes + training.gradient_bytes +
                     (constraints.offload_optimizer ? Bytes{} : training.optimizer_bytes);
  const Bytes room = machine.memory_bytes * (1 - constraints.spare) - machine.context;
  return room.value > 0 ? static_cast<int64_t>(parameters * each / room) : 0;
}

}  // namespace

std::optional<SmallestChange> smallest_change(const ModelNumbers& model, const MachineNumbers& machine,
                                              const TrainingNumbers& training, int64_t devices,
                                              const Constraints& constraints, const Plan& base, int64_t most_devices) {
  const auto on = [&](int64_t number) {
    std::optional<SmallestChange> least;
    const SearchResult result =
        search(model, machine, training, number, constraints, std::numeric_limits<size_t>::max());
    // Fastest first, so the first of equally many changes is the fastest.
    for (const Candidate& candidate : result.best) {
      const int changes = count_changes(base, candidate.plan);
      if (!least || changes < least->changes) least = {candidate, changes, number};
    }
    return least;
  };
  const int64_t enough = least_devices(model, machine, training, constraints);
  std::optional<SmallestChange> found;
  int64_t high = devices;
  for (; high <= most_devices; high *= 2) {
    if (high < enough) continue;
    found = on(high);
    if (found) break;
  }
  if (!found || high == devices) return found;
  // Some fit: what of the numbers below is the smallest? Whole hosts where there are several.
  const int64_t host = machine.per_host;
  constexpr int64_t kMostTries = 64;
  const int64_t hosts_step = host * std::max<int64_t>(1, (high - std::max(devices, enough)) / host / kMostTries);
  const auto next = [&](int64_t number) {
    if (number < host) return number + 1;
    return (number / host) * host + hosts_step;
  };
  for (int64_t number = next(devices); number < high; number = next(number)) {
    if (number < enough) continue;
    if (std::optional<SmallestChange> fewer = on(number)) return fewer;
  }
  return found;
}

}  // namespace trireme::plan
