// What torchrun, mpirun and shells write when a process ends.
#include <csignal>
#include <cstring>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/log_line.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

// "failed (exitcode: -9) local_rank: 1 (pid: 4121) of binary: /usr/bin/python"
void elastic_failed(const LogLine& line, Story& story) {
  const auto code = after(line.text, "failed (exitcode: ");
  const auto local = after(line.text, "local_rank: ");
  const auto pid = after(line.text, "(pid: ");
  if (!code || !local || !pid) return;
  const int number = leading_number<int>(*code).value_or(1);
  RankEnd end;
  // The local rank; the report of torchrun that follows has the rank. A process is known by its id.
  end.pid = leading_number(*pid).value_or(0);
  if (number < 0) {
    end.signal = -number;
  } else {
    end.exit_code = number;
  }
  end.hint = str("local rank ", leading_number<int>(*local).value_or(0));
  end.evidence = line.evidence();
  Story::keep(story.ends, std::move(end));
}

// "Sending process 4122 closing signal SIGTERM"
void elastic_closes(const LogLine& line, Story& story) {
  RankEnd end;
  end.pid = leading_number(after(line.text, "Sending process ").value_or("")).value_or(0);
  if (end.pid == 0) return;
  end.signal = SIGTERM;
  end.by_launcher = true;
  end.evidence = line.evidence();
  Story::keep(story.ends, std::move(end));
}

// "mpirun noticed that process rank 1 with PID 4121 on node node-01 exited on signal 9 (Killed)."
void mpirun_noticed(const LogLine& line, Story& story) {
  const auto rank = after(line.text, "noticed that process rank ");
  if (!rank) return;
  RankEnd end;
  end.rank = leading_number<int>(*rank);
  end.pid = leading_number(after(*rank, "with PID ").value_or("")).value_or(0);
  end.host = excerpt(until(after(*rank, "on node ").value_or(""), " "), 100);
  end.signal = leading_number<int>(after(*rank, "on signal ").value_or("")).value_or(0);
  end.first = true;
  end.evidence = line.evidence();
  Story::keep(story.ends, std::move(end));
}

// DeepSpeed: "['/usr/bin/python', '-u', 'main.py', '--local_rank=7'] exits with return code = -9"
void deepspeed_ended(const LogLine& line, Story& story) {
  const auto code = leading_number<int>(after(line.text, "exits with return code = ").value_or(""));
  if (!code || *code == 0) return;
  RankEnd end;
  if (*code < 0) {
    end.signal = -*code;
  } else {
    end.exit_code = code;
  }
  if (const auto local = leading_number<int>(after(line.text, "--local_rank=").value_or("")))
    end.hint = str("local rank ", *local);
  end.evidence = line.evidence();
  Story::keep(story.ends, std::move(end));
}

// "MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD"
void mpi_abort(const LogLine& line, Story& story) {
  const auto rank = leading_number<int>(after(line.text, "MPI_ABORT was invoked on rank ").value_or(""));
  if (!rank) return;
  Finding finding = told_by(line, "rank.aborted", Severity::kError, 0.7);
  finding.ranks = {*rank};
  finding.cause = str("rank ", *rank, " called MPI_Abort");
  finding.advice = "Its own lines before that say why.";
  story.add(std::move(finding));
}

// "DataLoader worker (pid 4121) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."
void data_loader(const LogLine& line, Story& story) {
  const bool bus = has(line.text, "Bus error") || has(line.text, "shared memory");
  const bool killed = has(line.text, "killed by signal: Killed");
  Finding finding = told_by(line, bus ? "data.shared_memory" : "data.worker_died", Severity::kError, bus ? 0.9 : 0.75);
  finding.cause = bus      ? "a data loader's worker ran out of shared memory (/dev/shm)"
                  : killed ? "a data loader's worker was killed (SIGKILL), usually by the kernel for its memory"
                           : "a data loader's worker died";
  finding.advice =
      bus ? "See 'df -h /dev/shm'; in a container: docker run --shm-size=16g (or --ipc=host). Fewer workers need less."
          : "See the kernel log (dmesg) for the OOM killer and the worker's own traceback; num_workers=0 shows its "
            "error directly.";
  story.add(std::move(finding));
}

void no_space(const LogLine& line, Story& story) {
  // As an error of the program, not in a text about it.
  if (!has(line.text, "rror") && !has(line.text, "Errno 28")) return;
  if (has(line.text, "NCCL WARN")) return;  // nccl_failures.cpp
  Finding finding = told_by(line, "host.no_space", Severity::kError, 0.85);
  const bool shm = has(line.text, "/dev/shm") || has(line.text, "shared memory");
  finding.cause = shm ? "/dev/shm is full" : "a disk is full";
  finding.advice =
      shm ? "docker run --shm-size=16g (or --ipc=host), or remove leftovers: ls -l /dev/shm"
          : "See 'df -h' and 'df -i' for the file system of the path in that line (checkpoints, logs, caches).";
  story.add(std::move(finding));
}

}  // namespace

int signal_of(std::string_view name) {
  if (name.starts_with("signal ")) return leading_number<int>(name.substr(7)).value_or(0);
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = sigabbrev_np(signal);
    if (known != nullptr && name == known) return signal;
  }
  return 0;
}

std::string name_of_signal(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? str("signal ", signal) : str("SIG", name);
}

std::vector<LogRule> launcher_rules() {
  return {{"failed (exitcode: ", &elastic_failed},        {"closing signal SIGTERM", &elastic_closes},
          {"noticed that process rank", &mpirun_noticed}, {"exits with return code = ", &deepspeed_ended},
          {"MPI_ABORT was invoked on rank", &mpi_abort},  {"DataLoader worker (pid", &data_loader},
          {"No space left on device", &no_space}};
}

}  // namespace trireme::diagnose
