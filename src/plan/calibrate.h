// Fitting the constants of devices, clusters and software profiles to measured rows, and what that is worth on rows left out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/fit.h"
#include "plan/score.h"

namespace trireme::plan {

/// What may move in a fit. Devices of one type that differ in memory only (A100-40 and A100-80) share theirs.
struct KnobChoice {
  bool devices = true, clusters = true, software = true;
};
/// Knobs of all devices, clusters and profiles that the rows use; of devices and profiles only what was fitted when they were shipped. The pointers are into the catalog, which must outlive them.
[[nodiscard]] std::vector<Knob> knobs_for(MachineCatalog& machines, const std::vector<const ScoredRow*>& rows,
                                          const KnobChoice& choice);

/// How a fit holds constants near their neutral start: weakly, where many rows determine them; or, of a cluster with a few rows, by how far
/// the constants of published clusters lie apart.
enum class Pull { kWeak, kSpread };
/// Moves the knobs to the best values for the rows' measured times; rows of one `weights` entry count alike. A value that the rows do not
/// determine stays near a neutral start, never near what was shipped: that may have been fitted on rows that are left out here.
void refit(Catalog& catalog, std::vector<Knob>& knobs, const std::vector<const ScoredRow*>& rows,
           const std::vector<double>& weights, Pull pull = Pull::kWeak);

/// At most `most` rows, evenly spread.
[[nodiscard]] std::vector<const ScoredRow*> spread(const std::vector<const ScoredRow*>& rows, size_t most);

/// Rows that can be compared: predicted, and with a measured time.
[[nodiscard]] std::vector<const ScoredRow*> comparable(const std::vector<ScoredRow>& rows);

/// Mean absolute error of rows under a catalog.
[[nodiscard]] double mape_under(const std::vector<const ScoredRow*>& rows, const Catalog& catalog);

struct Calibration {
  std::vector<int> lines;  ///< rows that the cluster's constants were fitted on
  int rest = 0;            ///< rows that were not
  double shipped = 0;      ///< MAPE of the rest with the shipped constants
  double unknown = 0;      ///< with device constants from other publishers, the cluster at its defaults
  double calibrated = 0;   ///< with device constants from other publishers, the cluster fitted on `lines`
  int others = 0;          ///< rows of other publishers
  struct Constant {
    std::string cluster, name;
    double value = 0;
  };
  std::vector<Constant> constants;  ///< what the fit found, by the keys of a cluster file
};
/// `all` are the files at hand, `at` the one to calibrate. Left out of the device constants: whatever shares a cluster or an owner with it.
[[nodiscard]] Calibration calibrate(const std::vector<ScoredFile>& all, size_t at, const Catalog& catalog, int rows);

struct Fold {
  std::string name;
  int rows = 0;
  double fitted = 0;    ///< MAPE of the rows with the shipped constants
  double left_out = 0;  ///< with all constants fitted without them
};
/// One fold for each publisher, and for each class of model size (below 1, 10, 100 billion parameters, above).
[[nodiscard]] std::vector<Fold> cross_validate(const std::vector<ScoredFile>& all, const Catalog& catalog);

}  // namespace trireme::plan
