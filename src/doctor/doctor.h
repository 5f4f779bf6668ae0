// `trireme doctor` as a function: what is wrong with this host, with other hosts, or with hosts of whom outputs of tools were saved.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "diagnose/report.h"
#include "doctor/place.h"

namespace trireme::doctor {

struct DoctorOptions {
  Place place;
  std::string train_program;  ///< path of trireme-train, which is asked for its LibTorch; empty: it is not there
};

/// Looks at this host with all probes at once. [blocking]
///
/// Cost     as long as the slowest probe, 8 s at most; 20 to 50 ms where there is no nvidia-smi and no LibTorch.
/// Errors   none of the host's: what cannot be found out is a row of state "unknown".
/// Threads  call it while the process has one thread.
[[nodiscard]] diagnose::Report examine_host(const DoctorOptions& options);

}  // namespace trireme::doctor
