// The flags of `trireme simulate`, and the case that they describe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/plan_inputs.h"
#include "trireme/plan/collective_time.h"
#include "trireme/plan/simulate.h"

namespace trireme::cli {

/// One case to simulate: a model on a cluster, or durations. Units as on the command line: ms, MB = 1e6 B, GB = 1e9 B.
struct SimulateCase {
  std::string schedule = "1f1b";  ///< a name, or a CSV file
  int stages = 4;                 ///< ranks of the pipeline
  int virtual_stages = 0;         ///< 0: 2 where the schedule needs it, else 1
  int micro_batches = 8;
  bool recompute = false;
  bool forward_only = false;
  double forward_ms = 10;  ///< of one micro-batch on one rank, all its stages together
  double backward_input_ms = -1, backward_weight_ms = -1, backward_ms = -1;
  std::vector<double> stage_factors;  ///< on all times of a stage
  double message_mb = 0;
  double link_gb_s = 25;
  double link_latency_us = 10;
  bool blocking = false;
  double activations_mb = 0, checkpoint_mb = 0, state_gb = 0;  ///< of one rank
  int64_t replicas = 1, tensor_parallel = 1;
  double gradients_mb = 0;  ///< of one rank
  std::string topology = "rails";
  int64_t domain = 1;
  double domain_link_gb_s = 300, nic_gb_s = 25, nic_latency_us = 5, spine_share = 1;
  double optimizer_ms = 0;
  std::vector<std::string> slow_ranks, slow_links;  ///< RANK=FACTOR
  PlanFlags training;                               ///< with a model: what the durations follow from
  int64_t micro_batch = 1;
  int zero_stage = 0;
  double model_link_gb_s = 0;  ///< in place of the cluster's
};

struct SimulateRequest {
  SimulateCase base;
  std::vector<std::string> compare;  ///< other schedules
  std::vector<std::string> compare_topologies;
  std::vector<double> compare_links;  ///< other link speeds, GB/s
  bool help = false, json = false;
  int width = 0;  ///< of the text; 0 = the terminal's
  std::string svg, trace, csv;
};

/// Errors   kConfig: an unknown flag with the nearest known one, a value that is no number.
[[nodiscard]] SimulateRequest parse_simulate_flags(const std::vector<std::string>& args);

[[nodiscard]] const char* simulate_help();

/// A case made ready, and what it gave.
struct SimulatedCase {
  std::string name;
  plan::Schedule schedule;
  plan::SimulateOptions options;
  plan::SimulatedStep step;
  double reduce_ms = 0;  ///< of one rank's gradients over all replicas
  int64_t replicas = 1;
  std::string model;          ///< with its cluster, in words; empty without one
  double closed_form_ms = 0;  ///< what `trireme plan` says of the same plan
  double limit_bytes = 0;     ///< memory of one of the cluster's devices; 0 without a model
  int virtual_stages = 1;
};

/// Errors   those of make_schedule(), read_schedule_csv(), check_schedule(), simulate(); kIo for a file that cannot be read.
[[nodiscard]] SimulatedCase run_case(const SimulateCase& wanted, std::string name);

}  // namespace trireme::cli
