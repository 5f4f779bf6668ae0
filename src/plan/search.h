// The fastest plan of all that fit: every combination of degrees, micro-batch, interleaving, recomputation and sharding that the constraints
// leave is costed or rejected for a reason that is counted.
//
// Exhaustive; what is skipped is what a rejected neighbour proves: with a larger micro-batch a plan that ran out of memory needs more.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/numbers.h"

namespace trireme::plan {

/// What may be searched. An empty list leaves all values; one value fixes it.
struct Constraints {
  std::vector<int64_t> dp, tp, pp, cp, ep, micro_batch, virtual_stages;
  std::vector<int> zero_stage;
  std::vector<Recompute> recompute;
  int64_t max_tp = 0, max_pp = 0, max_cp = 0;  ///< 0 = no limit
  bool tp_across_hosts = false;                ///< tensor-parallel ranks beyond one link domain: hardly ever fast
  double spare = 0.1;                          ///< share of the device's memory that stays free
  bool runnable = false;                       ///< only what Trireme's own runtime has today: data parallel replicas
};

enum class Rejected {
  kHeads,   ///< heads or feed-forward width no multiple of tp
  kLayers,  ///< fewer layers than stages
  kBatch,   ///< global batch no multiple of micro-batch x dp
  kSequence,
  kExperts,
  kInterleaving,  ///< micro-steps no multiple of pp
  kAcrossHosts,   ///< tensor parallel beyond one link domain
  kConstraint,    ///< fixed or limited by the user
  kNotRunnable,
  kEveryMicroStep,  ///< ZeRO 2 with several micro-steps, or 2 and 3 with a pipeline: gradients would be reduced in each micro-step
  kMemory,
  kOther,
};
inline constexpr int kNumRejected = static_cast<int>(Rejected::kOther) + 1;
[[nodiscard]] const char* text_of(Rejected reason);

struct Candidate {
  Plan plan;
  double seconds = 0;
  double bytes = 0;  ///< of the fullest rank
  int rank = 0;      ///< that rank
};

struct SearchResult {
  std::vector<Candidate>
      best;  ///< fastest first, at most `keep`; of plans that cost the same in time and memory the simplest
  std::vector<Candidate> pareto;  ///< no other plan is both faster and smaller; smallest memory first
  std::optional<Candidate>
      nearest;  ///< of those that need too much memory the one that needs least (seconds not computed)
  std::array<int64_t, kNumRejected> rejected{};
  int64_t considered = 0;  ///< all combinations, rejected ones too
  int64_t costed = 0;      ///< those whose time was computed
  double limit_bytes = 0;  ///< what a rank may use
};

/// Cost    docs/howto/which_plan.md: 75,795 plans, of which 3,559 were costed, in 35 ms on one core.
[[nodiscard]] SearchResult search(const ModelNumbers& model, const MachineNumbers& machine,
                                  const TrainingNumbers& training, int64_t devices, const Constraints& constraints,
                                  size_t keep);

}  // namespace trireme::plan
