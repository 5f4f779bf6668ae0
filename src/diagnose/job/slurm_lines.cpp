// What Slurm writes into a job's output: slurmstepd on each host, srun on the first. Node lists are expanded as Slurm does.
#include <csignal>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/log_line.h"
#include "diagnose/scan.h"
#include "rendezvous/nodelist.h"
#include "trireme/base/error.h"

namespace trireme::diagnose {
namespace {

/// "node-[3-5],login1" as hosts; as it stands when it is no list.
std::vector<std::string> hosts_of(std::string_view list) {
  try {
    std::vector<std::string> hosts = rendezvous::expand_nodelist(list);
    if (!hosts.empty()) return hosts;
  } catch (const Error&) {  // no list: told as it stands
  }
  return {excerpt(list, 100)};
}

/// "0-3,5": tasks are ranks.
std::vector<int> tasks_of(std::string_view list) {
  std::vector<int> ranks;
  constexpr size_t kMost = 1U << 16;
  while (!list.empty() && ranks.size() < kMost) {
    const std::string_view part = until(list, ",");
    const auto first = leading_number<int>(part);
    if (!first || *first < 0) break;
    const size_t dash = part.find('-');
    const int last =
        dash == std::string_view::npos ? *first : leading_number<int>(part.substr(dash + 1)).value_or(*first);
    for (int64_t rank = *first; rank <= last && ranks.size() < kMost; ++rank) ranks.push_back(static_cast<int>(rank));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
  }
  return ranks;
}

Finding about_job(const LogLine& line, const char* code, std::string cause, std::string advice) {
  Finding finding;
  finding.code = code;
  finding.severity = Severity::kError;
  finding.confidence = 0.97;
  finding.cause = std::move(cause);
  finding.advice = std::move(advice);
  add_evidence(finding, line.evidence());
  return finding;
}

// "slurmstepd: error: *** JOB 4711 ON node-01 CANCELLED AT 2026-11-30T12:00:00 DUE TO TIME LIMIT ***" (STEP 4711.0 for a step)
void cancelled(const LogLine& line, Story& story) {
  auto job = after(line.text, "*** JOB ");
  if (!job) job = after(line.text, "*** STEP ");
  if (!job) return;
  const std::string id = excerpt(until(*job, " "), 40);
  const std::string host = excerpt(until(after(*job, " ON ").value_or(""), " "), 100);
  const auto reason = between(*job, "DUE TO ", "***");
  const std::string_view why = reason ? trimmed(*reason) : std::string_view{};
  Finding finding;
  if (why.starts_with("TIME LIMIT")) {
    finding = about_job(line, "slurm.time_limit", str("Slurm ended job ", id, " at its time limit"),
                        "Ask for more (#SBATCH --time), or save before the end: #SBATCH --signal=B:TERM@120 and "
                        "'trireme run --grace 100'; then continue "
                        "with --resume. The ranks' own errors after that moment are its consequence.");
  } else if (why.starts_with("NODE FAILURE")) {
    finding = about_job(line, "slurm.node_failure",
                        str("Slurm ended job ", id, ": a node failed", host.empty() ? "" : " (told by " + host + ")"),
                        "The host died or lost its network; scontrol show node NODE, sinfo -R, its kernel log. Submit "
                        "again without it: "
                        "--exclude=NODE, or let Slurm requeue it (--requeue).");
  } else if (why.starts_with("PREEMPTION")) {
    finding = about_job(line, "slurm.preempted", str("Slurm ended job ", id, " for another one (preemption)"),
                        "Save often and continue with --resume; --requeue submits it again.");
  } else if (!why.empty()) {
    finding = about_job(line, "slurm.cancelled", str("Slurm ended job ", id, ": ", excerpt(why, 100)),
                        "sacct -j JOB -o State,ExitCode,Reason tells more.");
  } else {
    finding = about_job(line, "slurm.cancelled", str("job ", id, " was cancelled"),
                        "By scancel, or because a task of it failed: see what stands before that line.");
    finding.confidence =
        0.3;  // told only when nothing else is: Slurm cancels the rest of a step when a task of it has failed
  }
  finding.host = {};
  // JOB and STEP say the same twice.
  for (const Finding& known : story.findings) {
    if (known.code == finding.code && finding.code != "slurm.cancelled") return;
  }
  story.add(std::move(finding));
}

// "srun: error: Node failure on node-[03-04]"
void node_failure(const LogLine& line, Story& story) {
  const auto list = after(line.text, "Node failure on ");
  if (!list) return;
  for (const std::string& host : hosts_of(until(*list, " ."))) {
    Finding finding = about_job(line, "slurm.node_failure", "the node failed",
                                "The host died or lost its network: scontrol show node, sinfo -R, its kernel log. "
                                "Submit again with --exclude for it.");
    finding.host = host;
    story.add(std::move(finding));
  }
}

// "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.", older: "Detected 1 oom-kill
// event(s) in step 4711.batch cgroup. ..."; oldest: "Exceeded job memory limit"
void out_of_memory(const LogLine& line, Story& story) {
  OomKill kill;
  kill.by_batch_system = true;
  kill.evidence = line.evidence();
  // "node-03: slurmstepd: error: ..." where output is labelled by host.
  const std::string_view front = line.text.substr(0, line.text.find("slurmstepd"));
  if (front.ends_with(": ")) kill.host = excerpt(front.substr(0, front.size() - 2), 100);
  Story::keep(story.oom_kills, std::move(kill));
}

// "srun: error: node-01: task 2: Killed", "srun: error: node-[01-02]: tasks 0-3,5: Exited with exit code 1", "...: task 0: Out Of Memory"
void task_ended(const LogLine& line, Story& story) {
  const auto rest = after(line.text, "srun: error: ");
  if (!rest) return;
  auto tasks = after(*rest, ": task ");
  if (!tasks) tasks = after(*rest, ": tasks ");
  if (!tasks) return;
  const std::string host = hosts_of(until(*rest, ":")).front();
  const std::string_view how = trimmed(after(*tasks, ":").value_or(""));
  const std::vector<int> ranks = tasks_of(until(*tasks, ":"));
  if (how.starts_with("Out Of Memory")) {
    Story::keep(story.oom_kills, OomKill{0, {}, host, ranks, true, line.evidence()});
  }
  for (const int rank : ranks) {
    RankEnd end;
    end.rank = rank;
    end.host = host;
    end.evidence = line.evidence();
    if (const auto code = after(how, "exit code ")) end.exit_code = leading_number<int>(*code);
    if (how.starts_with("Killed")) end.signal = SIGKILL;
    if (how.starts_with("Out Of Memory")) end.signal = SIGKILL;
    if (how.starts_with("Segmentation fault")) end.signal = SIGSEGV;
    if (how.starts_with("Aborted")) end.signal = SIGABRT;
    if (how.starts_with("Bus error")) end.signal = SIGBUS;
    if (how.starts_with("Terminated")) end.signal = SIGTERM;
    end.by_launcher = end.signal == SIGTERM;
    Story::keep(story.ends, std::move(end));
  }
}

}  // namespace

std::vector<LogRule> slurm_rules() {
  return {{" CANCELLED AT ", &cancelled},
          {"Node failure on ", &node_failure},
          {"oom_kill event in StepId", &out_of_memory},
          {"oom-kill event(s) in ", &out_of_memory},
          {"Exceeded job memory limit", &out_of_memory},
          {"srun: error: ", &task_ended}};
}

}  // namespace trireme::diagnose
