// From the words of `trireme run` to a JobSpec.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/job.h"

namespace trireme::cli {

/// What the user wrote, before any of it means something.
struct RunFlags {
  std::string nproc_per_node = "1";
  std::string nnodes = "1";
  std::string rdzv_backend;
  std::string rdzv_endpoint;
  std::string rdzv_id;
  std::string rdzv_conf;
  bool standalone = false;
  int max_restarts = 0;
  std::string monitor_interval;
  std::string start_method;
  std::string event_log_handler;
  std::string role = "default";
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::string log_dir;
  std::string run_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string local_ranks_filter;
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  std::string local_addr;
  std::string logs_specs;
  std::string numa_binding;
  std::string signals_to_handle;
  std::optional<double> shutdown_timeout;
  std::optional<double> grace;
  std::optional<double> report_grace;
  bool virtual_local_rank = false;
  bool use_env = false;
  bool dry_run = false;
  bool json = false;
  bool help = false;
};

/// Throws kConfig: "[cli.run] WHAT 'trireme run --help' lists all flags."
[[noreturn]] void wrong_flag(const std::string& what);

/// `rest` is the program and its arguments.
[[nodiscard]] launch::JobSpec make_job_spec(const RunFlags& flags, std::vector<std::string> rest);

}  // namespace trireme::cli
