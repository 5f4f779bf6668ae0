#include "plan/fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace trireme::plan {

namespace {

/// Solves a x = b for a symmetric positive definite matrix by Cholesky; false where it is none.
bool solve(std::vector<double> a, std::vector<double> b, size_t n, std::vector<double>& x) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      if (i == j) {
        if (sum <= 0) return false;
        a[i * n + i] = std::sqrt(sum);
      } else {
        a[i * n + j] = sum / a[j * n + j];
      }
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i * n + k] * b[k];
    b[i] /= a[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k * n + i] * b[k];
    b[i] /= a[i * n + i];
  }
  x = std::move(b);
  return true;
}

struct Slope {
  size_t knob = 0;
  double value = 0;
};

}  // namespace

double fit(std::vector<Knob>& knobs, const std::vector<double>& weights, size_t robust, double scale,
           const Residuals& residuals, int steps) {
  const size_t n = knobs.size(), rows = weights.size();
  std::vector<double> at(n), now(rows), moved(rows), step;
  std::vector<size_t> all(rows);
  std::iota(all.begin(), all.end(), size_t{0});
  // The slopes of a row, one for each knob that moves it: a constant of one device leaves the rows of others alone.
  std::vector<std::vector<Slope>> slopes(rows);
  for (size_t j = 0; j < n; ++j) {
    for (const size_t row : knobs[j].moves) slopes[row].push_back({j, 0});
  }
  const auto apply = [&](const std::vector<double>& x) {
    for (size_t i = 0; i < n; ++i) knobs[i].set(std::exp(x[i]));
  };
  const auto clamp = [&](std::vector<double>& x) {
    for (size_t i = 0; i < n; ++i) x[i] = std::clamp(x[i], std::log(knobs[i].low), std::log(knobs[i].high));
  };
  const auto cost = [&](const std::vector<double>& r) {
    double sum = 0;
    for (size_t i = 0; i < rows; ++i) {
      const double u = r[i] / scale;
      sum += weights[i] * (i < robust ? 2 * (std::sqrt(1 + u * u) - 1) : u * u);
    }
    return sum;
  };
  for (size_t i = 0; i < n; ++i) at[i] = std::log(std::max(knobs[i].value, 1e-300));
  clamp(at);
  apply(at);
  residuals(all, now);
  constexpr double kDamping = 1e-3, kLeastGain = 1e-7;
  double best = cost(now), damping = kDamping;
  bool afresh = false;  // the damping was set back, and nothing was gained since
  for (int turn = 0; turn < steps && n > 0; ++turn) {
    apply(at);
    std::vector<size_t> next(rows, 0);  // of each row's slopes, in the order of the knobs
    for (size_t j = 0; j < n; ++j) {
      const double forward = at[j] + 1e-3 <= std::log(knobs[j].high) ? 1e-3 : -1e-3;
      knobs[j].set(std::exp(at[j] + forward));
      residuals(knobs[j].moves, moved);
      for (const size_t i : knobs[j].moves) slopes[i][next[i]++].value = (moved[i] - now[i]) / forward;
      knobs[j].set(std::exp(at[j]));
    }
    std::vector<double> normal(n * n, 0), right(n, 0);
    for (size_t i = 0; i < rows; ++i) {
      const double u = now[i] / scale, w = i < robust ? weights[i] / std::sqrt(1 + u * u) : weights[i];
      for (const Slope& one : slopes[i]) {
        const double wj = w * one.value;
        right[one.knob] -= wj * now[i];
        for (const Slope& other : slopes[i]) {
          if (other.knob > one.knob) break;
          normal[one.knob * n + other.knob] += wj * other.value;
        }
      }
    }
    for (size_t j = 0; j < n; ++j) {
      for (size_t k = j + 1; k < n; ++k) normal[j * n + k] = normal[k * n + j];
    }
    // A knob at its limit that would move out of it stays: else the others' steps are wrong.
    for (size_t j = 0; j < n; ++j) {
      const bool out = (right[j] > 0 && at[j] >= std::log(knobs[j].high) - 1e-9) ||
                       (right[j] < 0 && at[j] <= std::log(knobs[j].low) + 1e-9);
      if (!out) continue;
      for (size_t k = 0; k < n; ++k) normal[j * n + k] = normal[k * n + j] = 0;
      normal[j * n + j] = 1;
      right[j] = 0;
    }
    bool better = false;
    double gain = 0;
    for (int tries = 0; tries < 8 && !better; ++tries) {
      std::vector<double> damped = normal;
      for (size_t j = 0; j < n; ++j) damped[j * n + j] += damping * (normal[j * n + j] + 1e-9) + 1e-12;
      if (solve(damped, right, n, step)) {
        std::vector<double> x = at;
        for (size_t j = 0; j < n; ++j) x[j] += std::clamp(step[j], -0.5, 0.5);
        clamp(x);
        apply(x);
        residuals(all, moved);
        const double reached = cost(moved);
        if (reached < best) {
          better = true;
          gain = best - reached;
          best = reached;
          at = x;
          now = moved;
          damping = std::max(damping / 5, 1e-9);
          break;
        }
      }
      damping *= 6;
    }
    // Where a knob met its limit the damping has grown until nothing moves: only with a fresh one is the end known to be the end.
    const bool stuck = !better || gain < kLeastGain * best;
    if (stuck && afresh) break;
    if (stuck) damping = kDamping;
    afresh = stuck;
  }
  apply(at);
  return best;
}

}  // namespace trireme::plan
