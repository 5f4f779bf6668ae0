#include "trireme/rendezvous/job_env.h"

#include <charconv>
#include <cstdlib>
#include <map>
#include <vector>

#include "base/str.h"
#include "rendezvous/nodelist.h"
#include "trireme/base/error.h"

namespace trireme::rendezvous {
namespace {

[[noreturn]] void wrong(const std::string& what) { throw Error(ErrorKind::kConfig, "[rendezvous.job_env] " + what); }

class Environment {
 public:
  explicit Environment(const GetEnv& get_env) : get_env_(get_env) {}

  /// An empty variable counts as not set.
  [[nodiscard]] std::optional<std::string> text(const char* name) const {
    const char* value = get_env_ ? get_env_(name) : std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  }

  [[nodiscard]] std::optional<int> number(const char* name, int low, int high) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int result = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), result);
    if (error != std::errc{} || end != value->data() + value->size() || result < low || result > high) {
      wrong(str(name, "='", *value, "' is no number in ", low, "..", high, "; ", who_sets(name), " sets it."));
    }
    return result;
  }

 private:
  static const char* who_sets(std::string_view name) {
    if (name.starts_with("OMPI_")) return "mpirun";
    if (name.starts_with("SLURM_")) return "srun";
    return "the launcher (trireme run, torchrun) or the user";
  }
  const GetEnv& get_env_;
};

constexpr int kMaxRanks = 1'000'000;

void check_in_world(const char* what, int rank, const char* of, int size) {
  if (rank < size) return;
  wrong(str(what, "=", rank, " is not below ", of, "=", size,
            "; ranks count from 0. Let one launcher set both, or set both by hand."));
}

/// RANK, WORLD_SIZE, ...: trireme run, torchrun, torch.distributed.launch, or the user's own script.
std::optional<JobEnv> from_torch(const Environment& env) {
  const auto rank = env.number("RANK", 0, kMaxRanks);
  const auto size = env.number("WORLD_SIZE", 1, kMaxRanks);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size) {
    wrong(str(rank ? str("RANK=", *rank, " is set but WORLD_SIZE is not")
                   : str("WORLD_SIZE=", *size, " is set but RANK is not"),
              "; both belong together. Start with 'trireme run --nproc-per-node N', or unset it."));
  }
  JobEnv job;
  job.rank = *rank;
  job.world_size = *size;
  check_in_world("RANK", job.rank, "WORLD_SIZE", job.world_size);
  job.local_rank = env.number("LOCAL_RANK", 0, kMaxRanks).value_or(job.rank);
  job.local_world_size = env.number("LOCAL_WORLD_SIZE", 1, kMaxRanks).value_or(job.world_size);
  check_in_world("LOCAL_RANK", job.local_rank, "LOCAL_WORLD_SIZE", job.local_world_size);
  job.group_rank = env.number("GROUP_RANK", 0, kMaxRanks).value_or(0);
  job.restart_count = env.number("TORCHELASTIC_RESTART_COUNT", 0, kMaxRanks).value_or(0);
  const bool agent = env.text("TORCHELASTIC_RUN_ID").has_value();
  job.run_id = env.text("TRIREME_JOB_ID").value_or(env.text("TORCHELASTIC_RUN_ID").value_or(""));
  job.agent_serves_store = env.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  job.master_addr = env.text("MASTER_ADDR").value_or("");
  job.master_port = env.number("MASTER_PORT", 0, 65535).value_or(0);
  job.source = env.text("TRIREME_JOB_ID") ? "trireme run" : agent ? "torchrun" : "RANK and WORLD_SIZE";
  if (job.world_size > 1 && (job.master_addr.empty() || job.master_port == 0)) {
    wrong(str("RANK=", job.rank, " and WORLD_SIZE=", job.world_size, " are set but ",
              job.master_addr.empty() ? "MASTER_ADDR" : "MASTER_PORT",
              " is not; the ranks meet there. Start with 'trireme run' or torchrun, or set MASTER_ADDR and MASTER_PORT "
              "to rank 0's address and a free port."));
  }
  return job;
}

void take_master(const Environment& env, JobEnv& job, const char* single_host_reason, bool one_host) {
  job.master_addr = env.text("MASTER_ADDR").value_or(job.master_addr);
  job.master_port = env.number("MASTER_PORT", 0, 65535).value_or(0);
  if (one_host && job.master_addr.empty()) job.master_addr = "127.0.0.1";
  if (!one_host && (job.master_addr.empty() || job.master_port == 0)) {
    wrong(
        str(job.source, " started ", job.world_size, " ranks on several hosts (", single_host_reason,
            ") but MASTER_ADDR or MASTER_PORT is not set; the ranks meet there. Export both: rank 0's host name and a "
            "port that is free on it."));
  }
}

std::optional<JobEnv> from_mpirun(const Environment& env) {
  const auto rank = env.number("OMPI_COMM_WORLD_RANK", 0, kMaxRanks);
  const auto size = env.number("OMPI_COMM_WORLD_SIZE", 1, kMaxRanks);
  if (!rank || !size) return std::nullopt;
  JobEnv job;
  job.source = "mpirun";
  job.rank = *rank;
  job.world_size = *size;
  check_in_world("OMPI_COMM_WORLD_RANK", job.rank, "OMPI_COMM_WORLD_SIZE", job.world_size);
  job.local_rank = env.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, kMaxRanks).value_or(job.rank);
  job.local_world_size = env.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMaxRanks).value_or(job.world_size);
  check_in_world("OMPI_COMM_WORLD_LOCAL_RANK", job.local_rank, "OMPI_COMM_WORLD_LOCAL_SIZE", job.local_world_size);
  job.group_rank = env.number("OMPI_COMM_WORLD_NODE_RANK", 0, kMaxRanks) && job.local_world_size > 0
                       ? job.rank / job.local_world_size
                       : 0;
  job.run_id = "mpirun-" + env.text("PMIX_NAMESPACE").value_or(env.text("OMPI_MCA_ess_base_jobid").value_or("0"));
  if (job.world_size > 1) {
    take_master(env, job, "OMPI_COMM_WORLD_LOCAL_SIZE < OMPI_COMM_WORLD_SIZE", job.local_world_size == job.world_size);
  }
  return job;
}

/// Only below srun: a batch script has SLURM_PROCID and SLURM_NTASKS too, but is one process.
std::optional<JobEnv> from_srun(const Environment& env) {
  const auto step = env.text("SLURM_STEP_ID");
  const auto rank = env.number("SLURM_PROCID", 0, kMaxRanks);
  auto size = env.number("SLURM_STEP_NUM_TASKS", 1, kMaxRanks);
  if (!size) size = env.number("SLURM_NTASKS", 1, kMaxRanks);
  constexpr std::string_view kBatchStep = "4294967291";
  constexpr std::string_view kInteractiveStep = "4294967290";
  if (!step || *step == kBatchStep || *step == kInteractiveStep || !rank || !size) return std::nullopt;
  JobEnv job;
  job.source = "srun";
  job.rank = *rank;
  job.world_size = *size;
  check_in_world("SLURM_PROCID", job.rank, "SLURM_STEP_NUM_TASKS", job.world_size);
  job.local_rank = env.number("SLURM_LOCALID", 0, kMaxRanks).value_or(job.rank);
  job.group_rank = env.number("SLURM_NODEID", 0, kMaxRanks).value_or(0);
  const int hosts =
      env.number("SLURM_STEP_NUM_NODES", 1, kMaxRanks).value_or(env.number("SLURM_NNODES", 1, kMaxRanks).value_or(1));
  const std::string tasks = env.text("SLURM_STEP_TASKS_PER_NODE").value_or("");
  const auto per_host = tasks_per_host(tasks);
  job.local_world_size = job.group_rank < static_cast<int>(per_host.size())
                             ? per_host[static_cast<size_t>(job.group_rank)]
                             : (hosts == 1 ? job.world_size : std::max(1, job.world_size / hosts));
  check_in_world("SLURM_LOCALID", job.local_rank, "SLURM_STEP_TASKS_PER_NODE (here)", job.local_world_size);
  job.run_id = str("srun-", env.text("SLURM_JOB_ID").value_or("0"), ".", *step);
  if (job.world_size > 1) {
    const std::string nodes = env.text("SLURM_STEP_NODELIST").value_or(env.text("SLURM_NODELIST").value_or(""));
    if (hosts > 1) job.master_addr = first_host(nodes);
    take_master(env, job, "SLURM_STEP_NUM_NODES > 1", hosts == 1);
  }
  return job;
}

/// RANK set by hand or by a script, and at the same time mpirun's or srun's variables: both must say the same.
void check_agreement(const JobEnv& torch, const JobEnv& other, const char* rank_name, const char* size_name) {
  if (torch.rank == other.rank && torch.world_size == other.world_size) return;
  wrong(str("RANK=", torch.rank, " WORLD_SIZE=", torch.world_size, " (set by the user or a script) contradict ",
            rank_name, "=", other.rank, " ", size_name, "=", other.world_size, " (set by ", other.source,
            "); both must say the same. Unset RANK and WORLD_SIZE, or start without ", other.source, "."));
}

}  // namespace

JobEnv detect_job_env(const GetEnv& get_env) {
  const Environment env(get_env);
  JobEnv job;
  job.source = "none";
  if (auto torch = from_torch(env)) {
    job = std::move(*torch);
    // The innermost launcher wins: mpirun or srun may well have started torchrun or trireme run.
    if (job.source == "RANK and WORLD_SIZE") {
      if (const auto mpi = from_mpirun(env)) {
        check_agreement(job, *mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
      } else if (const auto slurm = from_srun(env)) {
        check_agreement(job, *slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
      }
    }
  } else if (auto mpi = from_mpirun(env)) {
    job = std::move(*mpi);
  } else if (auto slurm = from_srun(env)) {
    job = std::move(*slurm);
  }
  job.run_dir = env.text("TRIREME_RUN_DIR").value_or("");
  return job;
}

}  // namespace trireme::rendezvous
