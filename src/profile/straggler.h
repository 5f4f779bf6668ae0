// Names the rank that the others wait for in step after step, while the job runs or from the traces that it left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/lateness.h"

namespace trireme::profile {

struct StragglerOptions {
  int num_steps = 20;            ///< in a row, before it is said; 0: nothing is
  double share = 0.1;            ///< of a step that the others wait for it
  int64_t least_ns = 2'000'000;  ///< and at least so much
};

/// As TRIREME_SLOW_AFTER_STEPS and TRIREME_SLOW_PERCENT say. Throws kConfig on anything but 0 to 1000000 steps, 1 to 100 percent.
[[nodiscard]] StragglerOptions straggler_options_from_environment();

/// A rank has become slow, or is no longer. Times are means over the last StragglerOptions::num_steps steps.
struct StragglerNews {
  bool slow = true;
  int rank = 0;
  std::string host;
  uint32_t first_step = 0;  ///< of those steps
  uint32_t last_step = 0;
  int num_steps = 0;
  Lateness mean;
  int64_t step_ns = 0;

  /// "data loading", "computation or other code of its own", "communication": the largest part.
  [[nodiscard]] const char* cause() const;
  /// "rank 2 (node17) is slow: it came 38 ms later than the others in each of the last 20 steps (41 % of a step), 35 ms of it in data loading"
  /// After the job, `live` false: "rank 2 (node17) was slow: ... in each of 20 steps (...".
  [[nodiscard]] std::string words(bool live = true) const;
};

/// Purpose       Looks at the traces again and again. In a step that rank is slow for whom the others waited longest: more than the options say, and
///               more than twice as long as for any other rank, so that ranks that are late by turns are none.
/// Invariants    A rank is told once when it was slow in num_steps steps in a row, and once when it was not in as many. Steps that were overwritten
///               between two looks begin the counting anew.
/// Thread safety None.
class StragglerWatch {
 public:
  explicit StragglerWatch(StragglerOptions options) : options_(options) {}

  [[nodiscard]] std::vector<StragglerNews> look(const std::vector<TraceSnapshot>& traces);

 private:
  struct Rank {
    bool told = false;
    int in_a_row = 0;  ///< steps that were as the last one: slow, or not
    bool slow = false;
    std::vector<StepLateness> steps;  ///< of them the last num_steps, with only this rank's lateness
  };
  void count(int rank, const std::string& host, const StepLateness& step, const Lateness& own, bool slow,
             std::vector<StragglerNews>& news);

  StragglerOptions options_;
  uint32_t last_step_ = 0;
  std::vector<std::pair<int, Rank>> ranks_;
};

}  // namespace trireme::profile
