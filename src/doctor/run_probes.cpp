#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>

#include "base/fd.h"
#include "base/str.h"
#include "doctor/probe.h"
#include "trireme/base/error.h"

namespace trireme::doctor {
namespace {

using Clock = std::chrono::steady_clock;

struct Running {
  const Probe* probe = nullptr;
  pid_t pid = -1;
  Fd out;
  std::string text;
  Clock::time_point deadline;
  std::string failed;  ///< why there is no report
};

void unknown_row(Report& report, const Probe& probe, const std::string& why) {
  add_row(report, probe.name, Check::State::kUnknown, why);
}

[[noreturn]] void child(const Probe& probe, int out) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Report report;
  try {
    probe.run(report);
  } catch (const std::exception& error) {
    unknown_row(report, probe, error.what());
  }
  const std::string text = to_json(report);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t put = write(out, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    done += static_cast<size_t>(put);
  }
  _exit(0);
}

Running start(const Probe& probe) {
  Running running;
  running.probe = &probe;
  running.deadline = Clock::now() + probe.limit;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    running.failed = str("no pipe: ", std::strerror(errno));
    return running;
  }
  running.out = Fd(ends[0]);
  const Fd write_end(ends[1]);
  running.pid = fork();
  if (running.pid == 0) child(probe, write_end.get());
  if (running.pid < 0) {
    running.failed = str("no process: ", std::strerror(errno));
    running.out.reset();
  } else {
    setpgid(running.pid, running.pid);
  }
  return running;
}

/// Its end, if it has come; one that is stuck in the kernel is left behind.
void reap(Running& running) {
  int status = 0;
  const pid_t done = waitpid(running.pid, &status, running.failed.empty() ? 0 : WNOHANG);
  if (done == running.pid && WIFSIGNALED(status) && running.failed.empty()) {
    running.failed = str("the probe died by signal ", WTERMSIG(status), " (SIG", sigabbrev_np(WTERMSIG(status)), ")");
  }
  kill(-running.pid, SIGKILL);  // programs that it had started
}

void read_all(std::vector<Running>& all) {
  std::array<char, 65536> buffer{};
  for (;;) {
    std::vector<pollfd> fds;
    std::vector<Running*> owners;
    Clock::time_point next = Clock::now() + std::chrono::hours(1);
    for (Running& running : all) {
      if (!running.out) continue;
      fds.push_back({running.out.get(), POLLIN, 0});
      owners.push_back(&running);
      next = std::min(next, running.deadline);
    }
    if (fds.empty()) return;
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count();
    if (poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(wait + 1, 0, 60'000))) < 0 && errno != EINTR)
      return;
    for (size_t i = 0; i < fds.size(); ++i) {
      Running& running = *owners[i];
      if (fds[i].revents != 0) {
        const ssize_t got = read(running.out.get(), buffer.data(), buffer.size());
        if (got > 0) running.text.append(buffer.data(), static_cast<size_t>(got));
        if (got == 0 || (got < 0 && errno != EINTR)) running.out.reset();
      } else if (Clock::now() >= running.deadline) {
        running.failed =
            str("no answer within ", static_cast<double>(running.probe->limit.count()) / 1000, " s; it was given up");
        kill(-running.pid, SIGKILL);
        running.out.reset();
      }
    }
  }
}

}  // namespace

std::vector<Report> run_probes_apart(const std::vector<Probe>& probes) {
  std::vector<Running> all;
  all.reserve(probes.size());
  for (const Probe& probe : probes) all.push_back(start(probe));
  read_all(all);
  std::vector<Report> reports;
  for (Running& running : all) {
    if (running.pid > 0) reap(running);
    Report report;
    try {
      if (running.failed.empty()) report = diagnose::report_from_json(running.text);
    } catch (const Error& error) {
      running.failed = error.what();
    }
    if (!running.failed.empty()) unknown_row(report, *running.probe, running.failed);
    reports.push_back(std::move(report));
  }
  return reports;
}

Report run_probes(const std::vector<Probe>& probes) {
  Report all;
  for (Report& report : run_probes_apart(probes)) join_reports(all, std::move(report));
  return all;
}

void add_row(Report& report, std::string name, Check::State state, std::string text) {
  report.checks.push_back({std::move(name), state, std::move(text), {}});
}

void add_finding(Report& report, std::string code, Severity severity, double confidence, std::string cause,
                 std::string advice, std::string place, std::string text) {
  Finding finding;
  finding.code = std::move(code);
  finding.severity = severity;
  finding.confidence = confidence;
  finding.cause = std::move(cause);
  finding.advice = std::move(advice);
  if (!place.empty()) add_evidence(finding, {std::move(place), 0, std::move(text)});
  report.findings.push_back(std::move(finding));
}

void join_reports(Report& into, Report from) {
  const auto append = [](auto& to, auto& what) {
    to.insert(to.end(), std::make_move_iterator(what.begin()), std::make_move_iterator(what.end()));
  };
  append(into.findings, from.findings);
  append(into.checks, from.checks);
  append(into.files, from.files);
  append(into.hosts, from.hosts);
  diagnose::Facts& facts = into.facts;
  if (from.facts.topology) facts.add_topology(std::move(*from.facts.topology));
  for (diagnose::Topology& topology : from.facts.more_topologies) facts.add_topology(std::move(topology));
  append(facts.ports, from.facts.ports);
  append(facts.network, from.facts.network);
  append(facts.memory, from.facts.memory);
  append(facts.links, from.facts.links);
  const auto take = [](auto& to, auto& what) {
    if (!to) to = std::move(what);
  };
  take(facts.versions.nccl, from.facts.versions.nccl);
  take(facts.versions.cuda, from.facts.versions.cuda);
  take(facts.versions.driver, from.facts.versions.driver);
  take(facts.versions.torch, from.facts.versions.torch);
}

}  // namespace trireme::doctor
