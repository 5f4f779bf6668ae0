// What is wrong with a training job in the same way for all of its ranks: found before they start, so that it is told once.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"
#include "base/fd.h"
#include "trireme/rendezvous/job_env.h"

namespace trireme::cli {

/// Side of the patches of recipe vit, in pixels.
inline constexpr int64_t kViTPatch = 7;

/// Reads the headers of the image files and, with a folder in `resumed`, the indexes of its checkpoints.
///
/// Errors   kIo       image files that are missing or no IDX.
///          kConfig   images that do not fit together, the recipe or the batch; no checkpoint, or one of another recipe.
void check_job(const Config& config, const std::string& resumed);

/// Each rank is a process with a LibTorch of its own, about 200 MB: a slip of the hand must not bring the host down. Throws kConfig.
void refuse_too_many_ranks(const Config& config);

/// A launcher decides on the number of ranks. Throws kConfig when another was said by flag or environment; one from a file (another job's)
/// gives way, and rank 0 says so.
void check_number_of_ranks(const Config& config, const rendezvous::JobEnv& env);

/// Throws kConfig when `run_dir` holds checkpoints: two runs in one folder would mix their metrics, and the older one's
/// checkpoints could be taken for the newer one's.
void refuse_used_folder(const std::string& run_dir);

/// Whoever holds the result is the only run in this folder; throws kConfig when another is. Empty where there is no such
/// folder.
[[nodiscard]] Fd lock_run_folder(const std::string& run_dir);

/// A name of the job that a rank belongs to, the same over its restarts and for no other job.
[[nodiscard]] std::string name_of_job(const rendezvous::JobEnv& env);

/// Whether this is a restart of the very job that wrote `run_dir`: then its checkpoints are to be continued, not refused.
[[nodiscard]] bool is_restart_of(const std::string& run_dir, const rendezvous::JobEnv& env);

}  // namespace trireme::cli
