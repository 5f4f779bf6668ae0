// Predicts every row of tables of published measurements and says how far off it is.
#pragma once

#include <string>
#include <vector>

#include "plan/numbers.h"
#include "plan/row_reader.h"

namespace trireme::plan {

/// One row of a table with what the planner says of it.
struct ScoredRow {
  int line = 0;
  std::string refused;  ///< the reason; empty where it was predicted
  Case from;            ///< of rows that could be read
  bool readable = false;
  double seconds = 0, bytes = 0;  ///< predicted; bytes in the sense of the measured ones
  int fullest_rank = 0;
};

/// Scores of the rows of one table that have a measured value.
struct Score {
  std::string name;
  int rows = 0, with_time = 0, timed = 0;  ///< all, those with a measured time, those of them that were predicted
  double mape = 0, bias = 0, worst = 0, within_ten = 0;  ///< of step time, fractions
  int worst_line = 0;
  double
      constant_mape = 0,
      constant_tflops =
          0;  ///< the best single rate of each device and precision, fitted on these very rows; the rate of most rows
  int groups = 0;
  double spearman = 0, regret = 0, worst_regret = 0;
  int memory_rows = 0;
  double memory_mape = 0, memory_bias = 0;
  int out_of_memory = 0, out_of_memory_refused = 0, ran_refused = 0;
  std::vector<std::pair<std::string, int>> refusals;  ///< reason and number of rows, most first
  std::vector<std::pair<std::string, int>>
      assumed;  ///< of predicted rows: what they did not print, and what is known to be off
};

struct ScoredFile {
  CsvFile file;
  std::vector<ScoredRow> rows;
};

[[nodiscard]] ScoredFile score_rows(CsvFile file, const Catalog& catalog);
[[nodiscard]] Score summarise(const std::string& name, const std::vector<ScoredRow>& rows);

/// Predicts again after constants of the catalog have moved; the cases stay.
void predict_again(std::vector<ScoredRow>& rows, const Catalog& catalog);

/// The input with three columns more: predicted_step_s, predicted_peak_gb, refused; rows in their order.
[[nodiscard]] std::string predictions_csv(const ScoredFile& scored);

/// Model FLOPs of one optimizer step with the recomputed forward, attention in full.
[[nodiscard]] double step_flops(const Case& row);
/// The rate that makes the smallest mean absolute error over (flops / devices, seconds), and that error.
struct SingleConstant {
  double rate = 0, mape = 0;
};
[[nodiscard]] SingleConstant best_constant(const std::vector<std::pair<double, double>>& flops_and_seconds);
/// Rank correlation, ties at their mean rank; 0 for fewer than two.
[[nodiscard]] double spearman(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace trireme::plan
