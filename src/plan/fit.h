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
  std::vector<size_t> moves;  ///< the residuals that it can move, in rising order
  void set(double to) {
    value = to;
    for (double* place : places) *place = to;
  }
};

/// Minimises the sum of weight x soft-L1(residual / scale) by Levenberg-Marquardt with numeric derivatives; leaves the best values in the knobs.
/// `residuals` fills the places `which` (in rising order) of its second argument with log(predicted / measured) under the knobs as they are.
/// Returns the sum. [deterministic] The first `robust` residuals count linearly where they are large, the rest as squares everywhere.
///
/// Cost   a step asks for all residuals once or a few times, and for each knob for those that it moves.
using Residuals = std::function<void(const std::vector<size_t>& which, std::vector<double>& out)>;
double fit(std::vector<Knob>& knobs, const std::vector<double>& weights, size_t robust, double scale,
           const Residuals& residuals, int steps = 300);

}  // namespace trireme::plan
