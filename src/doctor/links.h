// What the ways between ranks of this host carry: memory, shared memory by the code that training uses, TCP; every pair, with the data checked.
// On GPUs: copies between every pair and an all-reduce, by dlopen of libcuda and libnccl.
#pragma once

#include <chrono>

#include "diagnose/report.h"

namespace trireme::doctor {

struct LinkOptions {
  int ranks = 2;
  size_t bytes = size_t{16} << 20;          ///< of one message of the measurement of bandwidth
  std::chrono::milliseconds limit{60'000};  ///< then what has not answered is given up
};

/// Rows, findings and facts.links. Pairs are measured one after the other. [blocking]
///
/// Cost     about 0.3 s for each pair of ranks.
/// Errors   kInvalidArgument for fewer than 2 ranks; what fails while measuring is a row.
/// Threads  call it while the process has one thread.
[[nodiscard]] diagnose::Report measure_links(const LinkOptions& options);

/// Of this process's GPUs; nothing where there is no libcuda or no GPU.
void measure_gpu_links(diagnose::Report& report, size_t bytes);

}  // namespace trireme::doctor
