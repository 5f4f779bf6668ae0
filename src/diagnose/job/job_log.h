// Logs of a job: what c10d, NCCL, Trireme, torchrun, mpirun, Slurm, the kernel and the program itself say of its end, in any mix and order.
#pragma once

#include <memory>

#include "diagnose/job/story.h"
#include "diagnose/reader.h"

namespace trireme::diagnose {

/// Fills the story, which must outlive the reader; reason() draws the conclusions.
///
/// Cost   about 2 s for a log of 1 GiB without a line of interest; memory bounded by Story::kMost.
[[nodiscard]] std::unique_ptr<LineReader> make_job_log_reader(Story& story);

}  // namespace trireme::diagnose
