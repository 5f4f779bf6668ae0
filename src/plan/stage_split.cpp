#include "plan/stage_split.h"

#include <algorithm>

namespace trireme::plan {
namespace {

/// From the last rank to the first, each takes as many layers as it does within `seconds`; false where layers are left.
bool fill(std::span<const SplitRank> ranks, Seconds seconds, std::vector<int>& counts) {
  int end = static_cast<int>(ranks.front().before.size()) - 1;
  for (size_t r = ranks.size(); r-- > 0;) {
    const SplitRank& rank = ranks[r];
    const int lowest = std::max(static_cast<int>(r), end - rank.most);  // one layer is left for each rank before
    const Seconds least = rank.before[end] - (seconds - rank.fixed);
    const auto first = std::lower_bound(rank.before.begin() + lowest, rank.before.begin() + end, least);
    const int begin = static_cast<int>(first - rank.before.begin());
    if (begin >= end) return false;
    counts[r] = end - begin;
    end = begin;
  }
  return end == 0;
}

Seconds slowest_of(std::span<const SplitRank> ranks, const std::vector<int>& counts) {
  Seconds slowest;
  int first = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int last = first + counts[r];
    slowest = std::max(slowest, ranks[r].fixed + ranks[r].before[last] - ranks[r].before[first]);
    first = last;
  }
  return slowest;
}

}  // namespace

std::vector<int> split_layers(std::span<const SplitRank> ranks) {
  std::vector<int> counts(ranks.size()), best;
  Seconds fixed, most_fixed, high;
  bool alike = true;
  for (const SplitRank& rank : ranks) {
    fixed += rank.fixed;
    most_fixed = std::max(most_fixed, rank.fixed);
    high = std::max(high, rank.fixed + rank.before.back());
    alike = alike && rank.before.data() == ranks.front().before.data();
  }
  high *= 1 + 1e-9;
  Seconds low;
  if (alike) {
    // No rank can be faster than all together are on average, and a layer more than that is enough where memory is.
    const std::span<const Seconds> before = ranks.front().before;
    Seconds layer;
    for (size_t i = 1; i < before.size(); ++i) layer = std::max(layer, before[i] - before[i - 1]);
    low = (before.back() + fixed) / static_cast<double>(ranks.size());
    if (fill(ranks, low + layer + most_fixed, counts)) high = low + layer + most_fixed;
  }
  if (!fill(ranks, high, counts)) return {};
  best = counts;
  high = slowest_of(ranks, best);
  constexpr double kNear = 1e-4;  // of the slowest rank
  while (high - low > kNear * high) {
    const Seconds middle = (low + high) / 2;
    if (fill(ranks, middle, counts)) {
      best = counts;
      high = std::min(middle, slowest_of(ranks, best));
    } else {
      low = middle;
    }
  }
  return best;
}

int most_layers(const ModelNumbers& model, const MachineNumbers& machine, const TrainingNumbers& training,
                const Plan& plan, int rank, Bytes limit) {
  const int layers = static_cast<int>(model.layers);
  const auto fits = [&](int count) {
    // Where the rank's layers would lie if all ranks were alike.
    const int middle = static_cast<int>((2 * int64_t{rank} + 1) * layers / (2 * plan.pp));
    const int first = std::clamp(middle - count / 2, 0, layers - count);
    return stage_memory(model, machine, training, plan, rank, {first, first + count}).total() <= limit;
  };
  int low = 0, high = layers;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (fits(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace trireme::plan
