#include "plan/fewer_devices.h"

#include <algorithm>
#include <vector>

namespace trireme::plan {
namespace {

constexpr int64_t kMostPlans = 200'000;

/// In the order in which they are worth trying.
std::vector<int64_t> counts_below(int64_t devices, int64_t unit, int64_t batch, int64_t least) {
  std::vector<int64_t> counts;
  const auto add = [&](int64_t count) {
    if (count >= least && count > 0 && std::find(counts.begin(), counts.end(), count) == counts.end())
      counts.push_back(count);
  };
  for (int64_t count = devices - unit; count >= std::max(least, unit); count -= unit) {
    if (batch % count != 0) continue;
    add(count);
    break;
  }
  if (devices % (2 * unit) == 0) add(devices / 2);
  constexpr size_t kMostCounts = 16;
  for (int64_t count = devices - unit; count >= std::max(least, unit) && counts.size() < kMostCounts; count -= unit)
    add(count);
  return counts;
}

}  // namespace

std::optional<FewerDevices> faster_on_fewer(const ModelNumbers& model, const MachineNumbers& machine,
                                            const TrainingNumbers& training, int64_t devices,
                                            const Constraints& constraints, double training_flops, double seconds) {
  const FlopsPerSecond rate =
      std::max({machine.linear, machine.plain, machine.attention, machine.batched, machine.convolution});
  const int64_t unit = devices > machine.per_host ? machine.per_host : 1;
  const auto least = rate.value > 0 ? static_cast<int64_t>(Flops{training_flops} / (rate * Seconds{seconds})) : 1;
  std::optional<FewerDevices> fastest;
  int64_t looked_at = 0;
  SearchOptions options;
  options.keep = 1;
  options.one_of_each_layout = true;
  for (const int64_t count : counts_below(devices, unit, static_cast<int64_t>(training.global_batch), least)) {
    if (looked_at > kMostPlans) break;
    const SearchResult result = search(model, machine, training, count, constraints, options);
    looked_at += result.considered;
    if (result.best.empty() || result.best.front().seconds >= (fastest ? fastest->best.seconds : seconds)) continue;
    fastest = FewerDevices{count, result.best.front()};
  }
  return fastest;
}

}  // namespace trireme::plan
