// Who am I? Reads what the launcher (trireme run, torchrun, torch.distributed.launch, mpirun, srun) left in the
// environment.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/rendezvous/store.h"

namespace trireme::rendezvous {

struct JobEnv {
  int rank = 0;  ///< global
  int world_size = 1;
  int local_rank = 0;  ///< within this host
  int local_world_size = 1;
  int group_rank = 0;       ///< number of this host
  std::string master_addr;  ///< empty in a world of one
  int master_port = 0;      ///< 0: rank 0 lets the kernel choose and tells the others through a file (one host only)
  bool agent_serves_store = false;  ///< the launcher holds the store; otherwise rank 0 does
  std::string run_id;               ///< the same on all ranks of one job
  std::string run_dir;  ///< TRIREME_RUN_DIR: where logs, traces and reports go; empty when the launcher gave none
  int restart_count = 0;
  std::string source;  ///< "torchrun", "trireme run", "none", ...: for messages
};

using GetEnv = std::function<const char*(const char*)>;

/// Reads the environment. Nothing there means a world of one. A half-set or contradictory environment is kConfig,
/// naming the variables, their values and who set them. `get_env` defaults to std::getenv. docs/env.md lists all
/// variables and which launcher wins where several left theirs. [local]
[[nodiscard]] JobEnv detect_job_env(const GetEnv& get_env = {});

/// The store that goes with the environment: the launcher's, or served by rank 0. A world of one gets a memory store.
/// [blocking] Within `timeout`. Errors: those of connect_tcp_store and start_tcp_store_server.
struct JobStore {
  std::shared_ptr<Store> store;
  std::shared_ptr<TcpStoreServer> server;  ///< only on rank 0, and only where the launcher does not serve
};
[[nodiscard]] JobStore open_job_store(const JobEnv& env, std::chrono::milliseconds timeout);

}  // namespace trireme::rendezvous
