// A probe looks at one thing of this host. Each runs in a process of its own, all at once, so that one which hangs in a driver, or crashes in a
// library that it loads, takes nothing along.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "diagnose/report.h"

namespace trireme::doctor {

using diagnose::Check;
using diagnose::Finding;
using diagnose::Report;
using diagnose::Severity;

struct Probe {
  std::string name;                 ///< as a row of the table says it
  std::chrono::milliseconds limit;  ///< then it is killed and its row says so
  std::function<void(Report&)> run;
};

/// Runs all, at the same time, and joins their reports in the order of the list. [blocking]
///
/// Cost     as long as the slowest, at most the largest limit and half a second; about 0.5 ms for each process.
/// Errors   none: a probe that throws, dies or is late becomes a row of state "unknown" with the reason.
/// Threads  call it while the process has one thread: it forks.
[[nodiscard]] Report run_probes(const std::vector<Probe>& probes);

/// The same without joining: one report for each probe.
[[nodiscard]] std::vector<Report> run_probes_apart(const std::vector<Probe>& probes);

/// Adds a row.
void add_row(Report& report, std::string name, Check::State state, std::string text);

/// Adds a finding; evidence is a place and what stood there, both may be empty.
void add_finding(Report& report, std::string code, Severity severity, double confidence, std::string cause,
                 std::string advice, std::string place = {}, std::string text = {});

/// Appends checks, findings, facts and files of another report.
void join_reports(Report& into, Report from);

}  // namespace trireme::doctor
