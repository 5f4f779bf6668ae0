#include "trireme/comm/init.h"

#include <atomic>
#include <filesystem>
#include <numeric>

#include "base/log.h"
#include "base/str.h"
#include "base/torch/torch_compat.h"
#include "comm/group_state.h"
#include "comm/meeting.h"
#include "comm/step.h"
#include "profile/rank_report.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/job_env.h"

namespace trireme::comm {
namespace {

std::atomic<uint32_t> g_step{0};

std::shared_ptr<profile::CollectiveTrace> open_trace(const rendezvous::JobEnv& env) {
  profile::TraceOptions options;
  options.rank = env.rank;
  if (!env.run_dir.empty()) {
    const std::filesystem::path folder = std::filesystem::path(env.run_dir) / "trace";
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      throw Error(ErrorKind::kIo,
                  str("[comm.init] rank ", env.rank, "/", env.world_size, ": cannot make ", folder.string(), ": ",
                      error.message(), ". TRIREME_RUN_DIR must name a folder that this process may write to."));
    }
    options.path = (folder / str("rank", env.rank, ".trace")).string();
  }
  return profile::open_collective_trace(options);
}

}  // namespace

uint32_t current_step() noexcept { return g_step.load(std::memory_order_relaxed); }
void set_step(uint32_t step) noexcept { g_step.store(step, std::memory_order_relaxed); }

Group init(const InitOptions& options) {
  check_torch_version();
  require_timeout(options.timeout);
  static_cast<void>(find_backend(options.backend));  // before anybody waits for anybody
  const rendezvous::JobEnv env = rendezvous::detect_job_env();
  if (env.world_size > 1) log::set_rank(env.rank);

  profile::prepare_rank_reports(env.run_dir, env.rank);

  GroupOptions group;
  group.backend = options.backend;
  group.rank = env.rank;
  group.timeout = options.timeout;
  group.global_ranks.resize(static_cast<size_t>(env.world_size));
  std::iota(group.global_ranks.begin(), group.global_ranks.end(), 0);
  group.trace = open_trace(env);
  if (env.world_size == 1) {
    group.meeting = std::make_shared<ThreadMeeting>();
    return make_group(group);
  }
  rendezvous::JobStore job = rendezvous::open_job_store(env, options.timeout);
  // A restarted job must not find what the one before left in a store that outlives it.
  const std::shared_ptr<rendezvous::Store> store =
      rendezvous::make_prefix_store(str("trireme/", env.run_id, "/", env.restart_count), job.store);
  group.meeting = make_store_meeting(store, job.store);
  Group world = make_group(group);
  world.state().keep_alive = job.server;
  return world;
}

}  // namespace trireme::comm
