// The fastest plan of all that fit: every combination of degrees, micro-batch, schedule, recomputation and sharding that the constraints
// leave is costed or rejected for a reason that is counted.
//
// Exhaustive; what is skipped is what a rejected neighbour proves: with a larger micro-batch a plan that ran out of memory needs more.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "plan/numbers.h"

namespace trireme::plan {

/// From `least` to `most`; 0 = no limit.
struct Bounds {
  int64_t least = 0, most = 0;
  [[nodiscard]] bool holds(int64_t value) const { return value >= least && (most == 0 || value <= most); }
};

/// What may be searched. An empty list leaves all values; one value fixes it.
struct Constraints {
  std::vector<int64_t> dp, tp, pp, cp, ep, micro_batch, virtual_stages;
  std::vector<int> zero_stage;
  std::vector<Recompute> recompute;
  std::vector<std::string> schedule;  ///< "1f1b", "interleaved", "zb1p", "zb2p", "zbv"
  Bounds dp_within, tp_within, pp_within, cp_within, ep_within, micro_batch_within;  ///< beside the lists
  bool tp_across_hosts = false;  ///< tensor-parallel ranks beyond one link domain: hardly ever fast
  bool even_stages = false;      ///< no split of the layers but the even one
  double spare = 0.1;            ///< share of the device's memory that stays free
  bool runnable = false;         ///< only what Trireme's own runtime has today: data parallel replicas
  // Axes that are off unless they are named: tried beside the plan without them.
  std::vector<int64_t> bucket_bytes;  ///< these instead of the profile's own bucket
  std::vector<int64_t> shard_ranks;   ///< ZeRO 3 within so many ranks, copies between them
  std::vector<double> compression;    ///< bytes of gradients sent / bytes of gradients
  bool offload_optimizer = false;
  bool offload_activations = false;
};

/// Chunks of a pipeline rank that are tried where nothing is said of them.
[[nodiscard]] std::vector<int64_t> searched_virtual_stages();

enum class Rejected {
  kHeads,   ///< heads or feed-forward width no multiple of tp
  kLayers,  ///< fewer layers than stages
  kBatch,   ///< global batch no multiple of micro-batch x dp
  kSequence,
  kExperts,
  kInterleaving,  ///< micro-steps no multiple of pp
  kChunks,        ///< layers no multiple of pp x virtual stages
  kSchedule,      ///< too few micro-steps for zero bubble, or recomputation with it
  kOperators,     ///< a network by operators with more than data parallelism and ZeRO
  kAcrossHosts,   ///< tensor parallel beyond one link domain
  kConstraint,    ///< fixed or limited by the user
  kNotRunnable,
  kShards,   ///< dp x cp no multiple of the ranks that share one copy
  kShares,   ///< unlike hosts: the degrees leave devices of one kind over
  kOffload,  ///< the link to the host is not known
  kMemory,
  kSlower,  ///< by its layers alone slower than plans that need no more memory
  kOther,
};
inline constexpr int kNumRejected = static_cast<int>(Rejected::kOther) + 1;
[[nodiscard]] const char* text_of(Rejected reason);
[[nodiscard]] Rejected reason_of(PlanFault fault);

struct Candidate {
  Plan plan;
  double seconds = 0;
  double bytes = 0;  ///< of the fullest rank (on unlike hosts: of the one that comes nearest to its limit)
  int rank = 0;      ///< that rank
  double limit = 0;  ///< what that rank may use
  int group = 0;     ///< kind of its host
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
  double limit_bytes = 0;  ///< what a rank may use (of unlike hosts the first kind's)
};

struct SearchOptions {
  size_t keep = std::numeric_limits<size_t>::max();
  bool one_of_each_layout = false;             ///< of plans with the same dp, tp, pp, cp and ep only the fastest
  std::function<void(double share)> progress;  ///< called now and then with the part that is done, 0 to 1
};

/// Cost     docs/howto/which_plan.md; bench/results/planner.md has plans a second. Memory: `keep` plans, or one for each layout.
[[nodiscard]] SearchResult search(const ModelNumbers& model, const MachineNumbers& machine,
                                  const TrainingNumbers& training, int64_t devices, const Constraints& constraints,
                                  const SearchOptions& options);
[[nodiscard]] SearchResult search(const ModelNumbers& model, const MachineNumbers& machine,
                                  const TrainingNumbers& training, int64_t devices, const Constraints& constraints,
                                  size_t keep);

}  // namespace trireme::plan
