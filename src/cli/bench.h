// The measurements behind `trireme bench`. Each is a function that returns rows; bench_main prints them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::bench {

/// Rows are filled on rank 0 and empty on the others.
struct CommOptions {
  std::vector<std::string> ops;  ///< empty: all of comm_ops()
  std::vector<int64_t> bytes = {4096, 65536, int64_t{1} << 20, int64_t{8} << 20, int64_t{32} << 20};
  int repetitions = 0;  ///< 0: 200 up to 64 KiB, 40 up to 1 MiB, 15 above
};
struct CommRow {
  std::string op;
  int64_t bytes = 0;  ///< of the tensor that one rank passes in
  int64_t count = 0;  ///< its f32 elements
  int ranks = 0;
  int repetitions = 0;
  double median_us = 0, min_us = 0, p99_us = 0, max_us = 0;
  double algbw_gb_s = 0;  ///< bytes / median, 1e9
  double busbw_gb_s = 0;  ///< what each rank must at least receive / median
  int64_t wrong = 0;      ///< elements that were not as they should be, over all ranks and checks
};
[[nodiscard]] const std::vector<std::string>& comm_ops();
[[nodiscard]] std::vector<CommRow> bench_comm(const CommOptions& options);

struct DdpBenchOptions {
  std::vector<std::string> models;     ///< empty: the three MLPs
  std::string gradients = "arena";     ///< DdpOptions::gradients
  std::vector<std::string> overrides;  ///< name=text for set_ddp_option
  int repetitions = 0;                 ///< 0: 40
  int64_t batch = 32;                  ///< per rank
};
struct DdpRow {
  std::string model;
  int ranks = 0;
  std::string gradients;
  int repetitions = 0;
  double step_ms = 0, step_min_ms = 0, step_p90_ms = 0;
  double local_ms = 0, local_min_ms = 0, local_p90_ms = 0;
  double ratio = 0;  ///< step_ms / local_ms
  int64_t gradient_bytes = 0;
  int64_t bytes_touched = 0;  ///< for gradients, per step and rank, beyond backward
  int64_t num_buckets = 0;
};
/// Throws for a place of gradients or an option that is not there; for the start, before there are ranks.
void check_ddp_bench(const DdpBenchOptions& options);
[[nodiscard]] std::vector<DdpRow> bench_ddp(const DdpBenchOptions& options);

/// What recording costs a step: on and off by turns, in the same processes.
struct OverheadOptions {
  std::vector<std::string> models;  ///< empty: the three MLPs
  int repetitions = 0;              ///< pairs of steps; 0: 4000 of the smallest model, 600 of the others
  int64_t batch = 32;               ///< per rank
  bool leak_watch = false;          ///< of the leak watch, which is off by default, instead of what is on by default
};
struct OverheadRow {
  std::string what;  ///< "collective trace", "leak watch"
  std::string model;
  int ranks = 0;
  int repetitions = 0;
  double on_ms = 0, off_ms = 0;  ///< medians
  double difference_us = 0;      ///< mean of the pairs' differences without the largest and the smallest tenth
  double upper_us = 0;           ///< its upper 95 % bound, by resampling the pairs
  double overhead = 0;           ///< difference / off
  double overhead_upper = 0;
  double watch_share = 0;  ///< of one core, used by the launcher's watch meanwhile; below 0: not known
  int64_t num_calls = 0;   ///< that a step records
};
[[nodiscard]] std::vector<OverheadRow> bench_overhead(const OverheadOptions& options);

struct LaunchRow {
  std::string what;
  int ranks = 0;
  int repetitions = 0;
  double median_ms = 0, min_ms = 0, max_ms = 0;
};
[[nodiscard]] std::vector<LaunchRow> bench_launch(int ranks, int repetitions);

/// What bench_launch starts as "hello": joins the job, adds one number over the ranks, ends.
int hello();

}  // namespace trireme::bench
