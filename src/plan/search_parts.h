// What the searches of equal and of unlike hosts share.
#pragma once

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/search.h"
#include "plan/time_model.h"

namespace trireme::plan {

/// All divisors, smallest first.
[[nodiscard]] std::vector<int64_t> divisors(int64_t number);

template <typename T>
bool allowed(const std::vector<T>& values, const T& value) {
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

/// A value that neither its list nor its bounds leave out.
inline bool allowed(const std::vector<int64_t>& values, const Bounds& within, int64_t value) {
  return within.holds(value) && allowed(values, value);
}

/// What is chosen beside degrees and micro-batch.
struct Choice {
  Recompute recompute = Recompute::kNone;
  int zero_stage = 0;
  int64_t virtual_stages = 1;
  const char* schedule = "1f1b";
  bool uneven = false;  ///< layers split by what they cost
  int64_t bucket_bytes = 0, shard_ranks = 0;
  double compression = 1;
  bool offload_optimizer = false, offload_activations = false;

  void set(Plan& plan) const;
};
/// All that the constraints leave, simplest first.
[[nodiscard]] std::vector<Choice> choices_of(const Constraints& constraints, bool operators);

/// Why a choice goes with no micro-batch of these degrees; kNone where it does, or where it is another name of a plan without it (`same`).
struct ChoiceFault {
  std::optional<Rejected> reason;
  bool same = false;
};
[[nodiscard]] ChoiceFault fault_of(const Choice& choice, const ModelNumbers& model, const MachineNumbers& machine,
                                   const Constraints& constraints, const Plan& degrees);

/// Why no plan with these degrees is possible, before micro-batch and the rest are looked at.
[[nodiscard]] std::optional<Rejected> refuse_degrees(const Constraints& constraints, const ModelNumbers& model,
                                                     int domain, const Plan& plan);

/// Work of micro-steps by what it depends on.
class WorkCache {
 public:
  WorkCache(const ModelNumbers& model, const TrainingNumbers& training) : model_(model), training_(training) {}
  const MicroStepWork& get(const MachineNumbers& machine, const Plan& plan);

 private:
  using Key = std::tuple<const MachineNumbers*, int64_t, int64_t, int64_t, int64_t>;
  static constexpr size_t kMost = 20'000;  // about 20 MB
  const ModelNumbers& model_;
  const TrainingNumbers& training_;
  std::map<Key, MicroStepWork> known_;
};

/// Keeps the best plans as they come.
class Collector {
 public:
  Collector(SearchResult& result, const SearchOptions& options) : result_(result), options_(options) {}
  void add(Candidate&& candidate);
  void reject(Rejected reason, int64_t plans);
  void too_large(const Candidate& candidate);
  /// Whether some plan is at least as small and as fast.
  [[nodiscard]] bool dominated(double bytes, double seconds) const;
  /// Sorts what was kept into the result.
  void finish();

 private:
  using Layout = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;
  SearchResult& result_;
  const SearchOptions& options_;
  std::vector<Candidate> all_;
  std::map<Layout, size_t> by_layout_;  ///< index in all_
  std::map<double, Candidate> pareto_;  ///< by bytes; seconds fall
};

}  // namespace trireme::plan
