#include "plan/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>

#include "base/str.h"

namespace trireme::plan {

namespace {

constexpr double kScale = 0.05;    // errors far above this count linearly
constexpr double kRidge = 0.002;   // weight of one knob's distance from its neutral start, against 1 for a table
constexpr size_t kMostRows = 150;  // of one table in a fit

/// A constant that may be fitted, where it lies, its limits, and what is assumed of it when nothing is known.
template <typename Desc>
struct Field {
  const char* name;
  Sourced Desc::* field;
  double low, high, neutral;
  double spread = 0;  ///< of its logarithm from one cluster to the next, as fitted on the published ones
};
constexpr Field<DeviceDesc> kDeviceFields[] = {
    {"matmul_efficiency", &DeviceDesc::matmul_efficiency, 0.3, 0.98, 0.65},
    {"matmul_half_depth", &DeviceDesc::matmul_half_depth, 10, 150, 100},
    {"memory_efficiency", &DeviceDesc::memory_efficiency, 0.4, 0.98, 0.8},
    {"attention_efficiency", &DeviceDesc::attention_efficiency, 0.05, 0.7, 0.25},
    {"batched_efficiency", &DeviceDesc::batched_efficiency, 0.1, 1.5, 0.7},
    {"low_precision_efficiency", &DeviceDesc::low_precision_efficiency, 0.2, 0.9, 0.55},
    {"link_efficiency", &DeviceDesc::link_efficiency, 0.2, 0.95, 0.8},
    {"convolution_efficiency", &DeviceDesc::convolution_efficiency, 0.2, 1.5, 0.9},
};
constexpr Field<ClusterDesc> kClusterFields[] = {
    {"launch_seconds", &ClusterDesc::launch_seconds, 4e-6, 4e-5, 18e-6, 0.3},
    {"link_latency", &ClusterDesc::link_latency, 5e-6, 3e-4, 45e-6, 0.9},
    {"network_efficiency", &ClusterDesc::network_efficiency, 0.05, 1, 0.8, 0.7},
};
constexpr Field<SoftwareProfile> kSoftwareFields[] = {
    // Profiles whose generation was fitted run the kernels that came after FlashAttention-2 (arXiv:2407.08608: 35 % of the H100's peak became 75 %).
    {"attention_generation", &SoftwareProfile::attention_generation, 0.6, 3.2, 1.6},
    {"overlap", &SoftwareProfile::overlap, 0.1, 0.98, 0.7},
    {"framework_rate", &SoftwareProfile::framework_rate, 0.2, 2, 1},
};

void add(std::vector<Knob>& knobs, std::string name, Sourced& value, double low, double high) {
  if (value.value <= 0) return;
  Knob knob;
  knob.name = std::move(name);
  knob.places = {&value.value};
  knob.low = low;
  knob.high = high;
  knob.value = value.value;
  knobs.push_back(std::move(knob));
}

bool moves_already(const std::vector<Knob>& knobs, const Sourced& value) {
  return std::any_of(knobs.begin(), knobs.end(), [&](const Knob& knob) {
    return std::find(knob.places.begin(), knob.places.end(), &value.value) != knob.places.end();
  });
}

double neutral_of(const std::string& name) {
  const std::string field = name.substr(name.rfind(':') + 1);
  for (const Field<DeviceDesc>& f : kDeviceFields) {
    if (field == f.name) return f.neutral;
  }
  for (const Field<ClusterDesc>& f : kClusterFields) {
    if (field == f.name) return f.neutral;
  }
  for (const Field<SoftwareProfile>& f : kSoftwareFields) {
    if (field == f.name) return f.neutral;
  }
  return field == "group_bandwidth" ? 170e9 : 0;
}

double spread_of(const std::string& name) {
  const std::string field = name.substr(name.rfind(':') + 1);
  for (const Field<ClusterDesc>& f : kClusterFields) {
    if (field == f.name) return f.spread;
  }
  return 0.7;  // a rate between the groups of a host, as the network's
}

std::string owner_of(const Case& row) { return row.publisher.substr(0, row.publisher.find('/')); }

/// Seconds that the catalog predicts for rows again and again, the model's numbers kept.
class Predictor {
 public:
  Predictor(const Catalog& catalog, const std::vector<const ScoredRow*>& rows) : catalog_(catalog), rows_(rows) {
    models_.reserve(rows.size());
    for (const ScoredRow* row : rows) {
      models_.push_back(numbers_of(row->from.model));
      training_.push_back(numbers_of(row->from.training));
    }
  }
  [[nodiscard]] double error(size_t i) const {
    const Case& c = rows_[i]->from;
    const MachineCatalog& m = catalog_.machines;
    const MachineNumbers hw =
        numbers_of(m.devices[c.device], m.clusters[std::max(0, c.cluster)], m.software[std::max(0, c.software)],
                   c.training, static_cast<int>(c.gpus_per_host));
    return step_time(models_[i], hw, training_[i], c.plan).total().value / c.seconds;
  }
  /// Whether a prediction looks at this constant of the catalog.
  [[nodiscard]] bool reads(size_t i, const double* place) const {
    const Case& c = rows_[i]->from;
    const MachineCatalog& m = catalog_.machines;
    return inside(m.devices[c.device], place) || inside(m.clusters[std::max(0, c.cluster)], place) ||
           inside(m.software[std::max(0, c.software)], place);
  }

 private:
  template <typename Desc>
  static bool inside(const Desc& desc, const double* place) {
    const auto first = reinterpret_cast<std::uintptr_t>(&desc), at = reinterpret_cast<std::uintptr_t>(place);
    return at >= first && at < first + sizeof(Desc);
  }

  const Catalog& catalog_;
  const std::vector<const ScoredRow*>& rows_;
  std::vector<ModelNumbers> models_;
  std::vector<TrainingNumbers> training_;
};

/// The rows of a fit and their weights: each table alike.
struct Sample {
  std::vector<const ScoredRow*> rows;
  std::vector<double> weights;
};
Sample sample(const std::vector<ScoredFile>& all, const std::function<bool(const ScoredRow&)>& take) {
  Sample out;
  for (const ScoredFile& file : all) {
    std::vector<const ScoredRow*> taken;
    for (const ScoredRow* row : comparable(file.rows)) {
      if (take(*row)) taken.push_back(row);
    }
    const std::vector<const ScoredRow*> some = spread(taken, kMostRows);
    for (const ScoredRow* row : some) {
      out.rows.push_back(row);
      out.weights.push_back(1.0 / static_cast<double>(some.size()));
    }
  }
  return out;
}

void reset_cluster(ClusterDesc& cluster) {
  for (const Field<ClusterDesc>& f : kClusterFields) (cluster.*f.field).value = f.neutral;
  if (cluster.devices_per_group > 0) cluster.group_bandwidth.value = 170e9;
}

template <typename Desc, size_t n>
void reset_fitted(Desc& desc, const Field<Desc> (&fields)[n]) {
  for (const Field<Desc>& f : fields) {
    if ((desc.*f.field).fitted) (desc.*f.field).value = f.neutral;
  }
}

/// Forgets what was fitted when it was shipped of a row's device, cluster and software, where none of `others` tells anything of it.
void reset_unknown(MachineCatalog& machines, const Case& row, const std::vector<const ScoredRow*>& others) {
  const auto unknown = [&others](int Case::* what, int index) {
    return index >= 0 && std::none_of(others.begin(), others.end(),
                                      [&](const ScoredRow* other) { return other->from.*what == index; });
  };
  if (unknown(&Case::device, row.device)) reset_fitted(machines.devices[row.device], kDeviceFields);
  if (unknown(&Case::cluster, row.cluster)) reset_cluster(machines.clusters[row.cluster]);
  if (unknown(&Case::software, row.software)) reset_fitted(machines.software[row.software], kSoftwareFields);
}

const char* size_class(const Case& row) {
  const double parameters = static_cast<double>(total_parameters(row.model));
  return parameters < 1e9    ? "models below 1 billion"
         : parameters < 1e10 ? "models of 1 to 10 billion"
         : parameters < 1e11 ? "models of 10 to 100 billion"
                             : "models above 100 billion";
}

}  // namespace

std::vector<const ScoredRow*> comparable(const std::vector<ScoredRow>& rows) {
  std::vector<const ScoredRow*> out;
  for (const ScoredRow& row : rows) {
    if (row.readable && row.refused.empty() && row.from.seconds > 0) out.push_back(&row);
  }
  return out;
}

std::vector<const ScoredRow*> spread(const std::vector<const ScoredRow*>& rows, size_t most) {
  if (rows.size() <= most) return rows;
  std::vector<const ScoredRow*> out;
  for (size_t i = 0; i < most; ++i) out.push_back(rows[(2 * i + 1) * rows.size() / (2 * most)]);
  return out;
}

double mape_under(const std::vector<const ScoredRow*>& rows, const Catalog& catalog) {
  if (rows.empty()) return 0;
  const Predictor predictor(catalog, rows);
  double sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) sum += std::abs(predictor.error(i) - 1);
  return sum / static_cast<double>(rows.size());
}

std::vector<Knob> knobs_for(MachineCatalog& machines, const std::vector<const ScoredRow*>& rows,
                            const KnobChoice& choice) {
  std::set<int> devices, clusters, software;
  for (const ScoredRow* row : rows) {
    devices.insert(row->from.device);
    if (row->from.cluster >= 0 || !choice.devices) clusters.insert(std::max(0, row->from.cluster));
    if (row->from.software >= 0) software.insert(row->from.software);
  }
  std::vector<Knob> knobs;
  if (choice.devices) {
    for (const int i : devices) {
      DeviceDesc& device = machines.devices[i];
      for (const Field<DeviceDesc>& f : kDeviceFields) {
        Sourced& value = device.*f.field;
        if (!value.fitted) continue;  // assumed when shipped: no public row tells it
        // The same value with the same origin: one device type in several sizes, used here or not.
        if (moves_already(knobs, value)) continue;
        add(knobs, str("device:", device.name, ":", f.name), value, f.low, f.high);
        for (DeviceDesc& twin : machines.devices) {
          Sourced& other = twin.*f.field;
          if (&other != &value && other.fitted && other.value == value.value && other.source == value.source &&
              twin.processors.value == device.processors.value)
            knobs.back().places.push_back(&other.value);
        }
      }
    }
  }
  if (choice.clusters) {
    for (const int i : clusters) {
      ClusterDesc& cluster = machines.clusters[i];
      for (const Field<ClusterDesc>& f : kClusterFields) {
        if (cluster.devices_per_group > 0 && f.field == &ClusterDesc::launch_seconds) continue;
        if (choice.devices && !(cluster.*f.field).fitted)
          continue;  // a joint fit leaves alone what it left alone before
        add(knobs, str("cluster:", cluster.name, ":", f.name), cluster.*f.field, f.low, f.high);
      }
      if (cluster.devices_per_group > 0)
        add(knobs, str("cluster:", cluster.name, ":group_bandwidth"), cluster.group_bandwidth, 3e10, 1e12);
    }
  }
  if (choice.software) {
    for (const int i : software) {
      SoftwareProfile& profile = machines.software[i];
      for (const Field<SoftwareProfile>& f : kSoftwareFields) {
        Sourced& value = profile.*f.field;
        if (!value.fitted || moves_already(knobs, value)) continue;
        add(knobs, str("software:", profile.name, ":", f.name), value, f.low, f.high);
        // One program that is told apart by what it was set to (recorded graphs) has one set of constants.
        for (SoftwareProfile& twin : machines.software) {
          Sourced& other = twin.*f.field;
          if (&other != &value && other.fitted && other.value == value.value && other.source == value.source)
            knobs.back().places.push_back(&other.value);
        }
      }
    }
  }
  return knobs;
}

void refit(Catalog& catalog, std::vector<Knob>& knobs, const std::vector<const ScoredRow*>& rows,
           const std::vector<double>& weights, Pull pull) {
  const Predictor predictor(catalog, rows);
  std::vector<double> all = weights, neutral, distance;
  for (Knob& knob : knobs) {
    knob.moves.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto read = [&](const double* place) { return predictor.reads(i, place); };
      if (std::any_of(knob.places.begin(), knob.places.end(), read)) knob.moves.push_back(i);
    }
    knob.moves.push_back(all.size());  // its own distance from the start
    // A row's error of kScale and a constant that is one spread from its start are equally likely.
    all.push_back(pull == Pull::kSpread ? weights.front() : kRidge);
    distance.push_back(pull == Pull::kSpread ? kScale / spread_of(knob.name) : 0.1);
    neutral.push_back(neutral_of(knob.name));
    knob.set(neutral.back());
  }
  const size_t robust = pull == Pull::kSpread ? rows.size() : all.size();
  const Residuals residuals = [&](const std::vector<size_t>& which, std::vector<double>& out) {
    for (const size_t i : which) {
      const size_t knob = i - rows.size();  // where it is none, a number beyond all of them
      out[i] =
          i < rows.size() ? std::log(predictor.error(i)) : distance[knob] * std::log(knobs[knob].value / neutral[knob]);
    }
  };
  fit(knobs, all, robust, kScale, residuals);
}

Calibration calibrate(const std::vector<ScoredFile>& all, size_t at, const Catalog& shipped, int number) {
  Calibration result;
  const std::vector<const ScoredRow*> mine = comparable(all[at].rows);
  if (mine.empty()) return result;
  std::set<int> clusters;
  std::set<std::string> owners;
  for (const ScoredRow* row : mine) {
    clusters.insert(row->from.cluster);
    owners.insert(owner_of(row->from));
  }
  Catalog catalog = shipped;
  // Networks by operators take the device's constants from transformers, not the other way round: their framework's rate hides too much.
  const bool by_operators = !mine.front()->from.model.is_transformer();
  const Sample others = sample(all, [&](const ScoredRow& row) {
    return (row.from.model.is_transformer() || by_operators) && !clusters.contains(row.from.cluster) &&
           !owners.contains(owner_of(row.from));
  });
  result.others = static_cast<int>(others.rows.size());
  if (!others.rows.empty()) {
    std::vector<Knob> knobs = knobs_for(catalog.machines, others.rows, {});
    refit(catalog, knobs, others.rows, others.weights);
  }
  for (const int i : clusters) reset_cluster(catalog.machines.clusters[std::max(0, i)]);
  const std::vector<const ScoredRow*> chosen = spread(mine, static_cast<size_t>(std::max(1, number)));
  std::vector<const ScoredRow*> rest;
  for (const ScoredRow* row : mine) {
    if (std::find(chosen.begin(), chosen.end(), row) == chosen.end())
      rest.push_back(row);
    else
      result.lines.push_back(row->line);
  }
  result.rest = static_cast<int>(rest.size());
  result.shipped = mape_under(rest, shipped);
  result.unknown = mape_under(rest, catalog);
  std::vector<Knob> knobs =
      knobs_for(catalog.machines, chosen, {.devices = false, .clusters = true, .software = false});
  refit(catalog, knobs, chosen, std::vector<double>(chosen.size(), 1.0 / static_cast<double>(chosen.size())),
        Pull::kSpread);
  result.calibrated = mape_under(rest, catalog);
  for (const Knob& knob : knobs) {
    const size_t first = knob.name.find(':') + 1, last = knob.name.rfind(':');
    result.constants.push_back({knob.name.substr(first, last - first), knob.name.substr(last + 1), knob.value});
  }
  return result;
}

std::vector<Fold> cross_validate(const std::vector<ScoredFile>& all, const Catalog& shipped) {
  std::map<std::string, std::vector<const ScoredRow*>> publishers, sizes;
  for (const ScoredFile& file : all) {
    for (const ScoredRow* row : comparable(file.rows)) {
      publishers[owner_of(row->from)].push_back(row);
      sizes[size_class(row->from)].push_back(row);
    }
  }
  std::vector<Fold> folds;
  const auto run = [&](const std::string& name, const std::vector<const ScoredRow*>& rows) {
    Fold fold{.name = name, .rows = static_cast<int>(rows.size()), .fitted = mape_under(rows, shipped), .left_out = 0};
    const std::set<const ScoredRow*> left_out(rows.begin(), rows.end());
    Catalog catalog = shipped;
    const bool by_operators = !rows.front()->from.model.is_transformer();
    const Sample others = sample(all, [&](const ScoredRow& row) {
      return (row.from.model.is_transformer() || by_operators) && !left_out.contains(&row);
    });
    if (others.rows.empty()) return;
    std::vector<Knob> knobs = knobs_for(catalog.machines, others.rows, {});
    // Before the fit, which sets a device of the same type in another size along with the one that it sees.
    for (const ScoredRow* row : rows) reset_unknown(catalog.machines, row->from, others.rows);
    refit(catalog, knobs, others.rows, others.weights);
    fold.left_out = mape_under(rows, catalog);
    folds.push_back(fold);
  };
  for (const auto& [name, rows] : publishers) run(name, rows);
  for (const auto& [name, rows] : sizes) run(name, rows);
  return folds;
}

}  // namespace trireme::plan
