#include "plan/assume_what_fits.h"

#include <algorithm>
#include <vector>

#include "base/str.h"
#include "plan/numbers.h"

namespace trireme::plan {

void assume_what_fits(Case& row, const Catalog& catalog, OpenMeans open) {
  if (!row.model.is_transformer() || (!open.zero_stage && !open.recompute && !open.share)) return;
  const MachineCatalog& m = catalog.machines;
  const MachineNumbers hw =
      numbers_of(m.devices[row.device], m.clusters[std::max(0, row.cluster)], m.software[std::max(0, row.software)],
                 row.training, static_cast<int>(row.gpus_per_host));
  const ModelNumbers model = numbers_of(row.model);
  const TrainingNumbers training = numbers_of(row.training);
  struct Way {
    Recompute recompute;
    double share;
    bool offload = false;
  };
  constexpr BytesPerSecond kFastHostLink{
      100e9};  // faster than any PCI Express: activations go to the host and back behind the products
  std::vector<Way> ways = {{row.plan.recompute, 1}};
  if (open.recompute) {
    ways = {{Recompute::kNone, 1}, {Recompute::kSelective, 1}};
    for (int eighths = 1; eighths <= 8 && hw.host_link > kFastHostLink; ++eighths)
      ways.push_back({Recompute::kNone, eighths / 8.0, true});
  }
  if (open.recompute || open.share) {
    for (int eighths = 1; open.recompute && eighths <= 8; ++eighths)
      ways.push_back({Recompute::kSelectiveOperators, eighths / 8.0});
    for (int eighths = 1; eighths <= 8; ++eighths) ways.push_back({Recompute::kFull, eighths / 8.0});
  }
  const int first = row.plan.zero_stage, last = !open.zero_stage || row.plan.dp * row.plan.cp <= 1 ? first
                                                : row.plan.pp > 1                                  ? std::max(first, 1)
                                                                                                   : 3;
  const Plan printed = row.plan;
  for (const Way& way : ways) {
    for (int zero = first; zero <= last; ++zero) {
      row.plan.recompute = way.recompute;
      row.plan.recompute_share = way.share;
      row.plan.offload_activations = way.offload;
      row.plan.zero_stage = zero;
      if (peak_memory(model, hw, training, row.plan).parts.total() > hw.memory_bytes) continue;
      if (open.zero_stage) row.assumptions.push_back(str("ZeRO stage not given: ", zero));
      if (way.offload) {
        row.assumptions.push_back(
            str("activations of ", way.share, " of the layers go to the host's memory, else it does not fit"));
        return;
      }
      const char* name = way.recompute == Recompute::kNone                 ? "none"
                         : way.recompute == Recompute::kSelective          ? "selective"
                         : way.recompute == Recompute::kSelectiveOperators ? "of operators"
                                                                           : "full";
      if (open.recompute)
        row.assumptions.push_back(
            str("recomputation not given: ", name, " on ", way.share, " of the layers, the least that fits"));
      else if (open.share && way.recompute == Recompute::kFull)
        row.assumptions.push_back(
            str("selective recomputation taken as full on ", way.share, " of the layers, else it does not fit"));
      return;
    }
  }
  row.plan = printed;
}

}  // namespace trireme::plan
