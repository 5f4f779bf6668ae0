// Joining the traces of ranks into one, on one clock: `trireme trace merge`. And collective traces as Chrome traces: `trireme trace export`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/collective_trace.h"
#include "trace/match.h"

namespace trireme::trace {

struct MergeOptions {
  /// Largest size of one file, uncompressed; what is more goes into several, each a slice of time of all ranks. 0: one file whatever its size.
  /// Default 500 MB: above it the viewers' pages stay blank.
  uint64_t limit_bytes = 500'000'000;
};

struct MergeResult {
  std::vector<std::string> files;    ///< written, in order of time
  std::vector<uint64_t> file_bytes;  ///< uncompressed
  std::vector<uint64_t> file_events;
  uint64_t num_events = 0;
  uint64_t num_left_out = 0;  ///< events whose arguments are not JSON
  std::vector<std::string> clock_lines;
  std::vector<std::string> notices;
};

/// Reads every file twice, and holds of it only its collectives: memory is bounded by these, not by the files' sizes. In the result the pid is the rank,
/// and the tid counts the threads and streams of the rank; names say what they were. Flow ids are made different between ranks. Spans that were never
/// ended are closed and marked, durations below zero set to 0, events that are not JSON left out: the result is JSON to the last byte.
///
/// Errors   kInvalidArgument   no file; two of one rank; one that holds no event; an output that is also an input.
///          kIo                reading or writing; nothing has its name then that is not whole.
[[nodiscard]] MergeResult merge_traces(const std::vector<std::string>& paths, const std::string& output,
                                       const MergeOptions& options);

/// The calls of a collective trace as a Chrome trace that PyTorch's tools understand too: the arguments have the names that its profiler gives them.
/// Calls that had not ended are closed at the last time of the trace and marked. Returns its bytes, uncompressed.
[[nodiscard]] uint64_t write_chrome_trace(const profile::TraceSnapshot& snapshot, const std::string& path);

struct ExportResult {
  std::vector<std::string> files;
  std::vector<std::string> notices;
};

enum class ExportFormat {
  kChrome,              ///< OUT_DIR/rankN.json, with `gzip` rankN.json.gz
  kFlightRecorder,      ///< OUT_DIR/rankN: a pickle, under the names that PyTorch's fr_trace looks for
  kFlightRecorderJson,  ///< OUT_DIR/rankN.json
};

/// Every trace/rankN.trace of a run folder. Throws kIo.
[[nodiscard]] ExportResult export_run(const std::string& run_dir, const std::string& out_dir, ExportFormat format,
                                      bool gzip);

}  // namespace trireme::trace
