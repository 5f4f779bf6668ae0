// The collective trace of a rank as c10d's flight recorder writes its own, so that PyTorch's fr_trace and every other reader of such dumps takes it.
#pragma once

#include <string>

#include "profile/collective_trace.h"

namespace trireme::trace {

/// What a dump of the flight recorder holds, version 2.10 (torch 2.13): `entries`, `pg_config`, `version`. Format: torch's
/// c10d/FlightRecorder.hpp and torch/distributed/flight_recorder.
///
/// Operations   carry the name of the collective behind "gloo:", since fr_trace takes the backends that it knows and no others.
/// Sizes        of what comes out follow from what goes in; those of an all-to-all are not in the trace and are given as those of its input.
/// Not there    stacks, time-outs and thread names, which the trace does not keep. Records that could not be read are left out.
/// Order        by serial, as recorded; `record_id` is the serial less one.
[[nodiscard]] std::string flight_recorder_pickle(const profile::TraceSnapshot& trace);

/// The same as JSON, as torch's `_dump_nccl_trace_json` has it.
[[nodiscard]] std::string flight_recorder_json(const profile::TraceSnapshot& trace);

}  // namespace trireme::trace
