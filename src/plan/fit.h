// Robust least squares over a few constants: what `plan score --calibrate` and the shipped constants are fitted with.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trireme::plan {

/// A constant that may move: one value, written to all places that share it.
struct Knob {
  std::string name;
  std::vector<double*> places;
  double low = 0, high = 0;  ///< both more than 0: the search runs over the logarithm
  double value = 0;
  void set(double to) {
    value = to;
    for (double* place : places) *place = to;
  }
};

/// Minimises the sum of weight x soft-L1(residual / scale) by Levenberg-Marquardt with numeric derivatives; leaves the best values in the knobs.
/// `residuals` fills its argument with log(predicted / measured), in the same order each time. Returns the sum. [deterministic]
double fit(std::vector<Knob>& knobs, const std::vector<double>& weights, double scale,
           const std::function<void(std::vector<double>&)>& residuals, int steps = 60);

}  // namespace trireme::plan
