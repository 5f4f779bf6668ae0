// Clusters of unlike hosts: what a plan costs there, and the fastest that fits. docs/planner.md, "Unlike hosts".
#pragma once

#include "plan/search.h"

namespace trireme::plan {

/// Hosts of one kind.
struct DeviceGroup {
  MachineNumbers machine;
  int64_t devices = 0;
};

struct MixedCost {
  TimeParts time;    ///< of the kind that takes longest
  int slowest = 0;   ///< that kind
  double bytes = 0;  ///< of the rank that comes nearest to its limit
  double limit = 0;
  int rank = 0, group = 0;
};
/// Of a plan with stage_group or replicas, which must fit the groups.
[[nodiscard]] MixedCost mixed_cost(const ModelNumbers& model, const std::vector<DeviceGroup>& groups,
                                   const TrainingNumbers& training, const Plan& plan, double spare);

/// Micro-steps of each kind's replicas so that the slowest ends as early as it can: `first` seconds for one micro-step and `next` for each
/// further one, by kind, `count` replicas of each, `steps` micro-steps in all. Empty where a kind is left without any.
[[nodiscard]] std::vector<ReplicaShare> share_micro_steps(const std::vector<double>& first,
                                                          const std::vector<double>& next,
                                                          const std::vector<int64_t>& count, int64_t steps);

/// Two ways to use all devices: replicas of one layout on every kind, with micro-steps in proportion to their speed; or pipelines that run
/// through all kinds (in the order of the groups, and the other way round), with layers in proportion to speed, bounded by memory.
[[nodiscard]] SearchResult search_mixed(const ModelNumbers& model, const std::vector<DeviceGroup>& groups,
                                        const TrainingNumbers& training, const Constraints& constraints,
                                        const SearchOptions& options);

}  // namespace trireme::plan
