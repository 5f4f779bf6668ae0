// What a rank finds in its environment (docs/env.md), and where the run folder is.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/job.h"

namespace trireme::launch {

/// What is the same for all ranks of one attempt.
struct Attempt {
  std::string job_id;
  std::string run_dir;         ///< absolute
  std::string port;            ///< of the store; text, since a plan has none yet
  int number = 0;              ///< restarts so far
  std::string stacks_program;  ///< trireme-stacks; empty: it was not found
  std::string watcher;         ///< pid of this launcher, where it watches for hangs
};

/// The variables that the launcher adds or changes; an empty value removes.
[[nodiscard]] std::map<std::string, std::string> rank_variables(const JobSpec& spec, const Attempt& attempt, int rank);

/// The environment of this process with `changes` on top, as NAME=value.
[[nodiscard]] std::vector<std::string> with_changes(const std::map<std::string, std::string>& changes);

/// 12 random hexadecimal digits.
[[nodiscard]] std::string new_job_id();

/// Makes the run folder of spec.run_dir or spec.log_dir, and returns its absolute path. Throws kIo.
[[nodiscard]] std::string make_run_dir(const JobSpec& spec, const std::string& job_id);

/// Makes <run_dir>/logs. Reports of an earlier job in this folder are renamed to NAME.old. Throws kIo.
void make_log_dir(const std::string& run_dir, int num_ranks);

/// Now, local time, as strftime has it.
[[nodiscard]] std::string date_and_time(const char* format);

/// The program's path: as given when it has a '/', else from PATH. Throws kConfig when there is no such executable.
[[nodiscard]] std::string find_program(const std::string& name);

/// Whether OMP_NUM_THREADS is set to 1 because nobody else has set it.
[[nodiscard]] bool sets_one_thread(const JobSpec& spec);

}  // namespace trireme::launch
