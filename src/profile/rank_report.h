// How a rank lets itself be looked at: by its launcher, at a fatal signal, and when somebody asks for it by a signal. And the settings that
// launcher and ranks read alike.
#pragma once

#include <chrono>
#include <string>

namespace trireme::profile {

/// The limit as TRIREME_HANG_AFTER_S says, else 3 s; 0 where that is 0. Throws kConfig on anything but 0 to 1000000.
[[nodiscard]] std::chrono::milliseconds hang_limit_from_environment();

/// Whether a launcher watches this rank for hangs (TRIREME_WATCHER).
[[nodiscard]] bool is_watched();

/// trireme-stacks beside this program, else in PATH; empty when there is none.
[[nodiscard]] std::string find_stacks_program();

/// From now on this process leaves `<run_dir>/reports/rank<r>.txt`, with the stacks of its threads and its memory,
///   - when a fatal signal or abort() ends it: SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT. It waits for that at most 2 s, then ends as without us;
///   - whenever it gets the signal that TRIREME_REPORT_SIGNAL names ("USR1", "SIGUSR1", "10").
/// Never over a handler that is there: that signal is left alone, and for TRIREME_REPORT_SIGNAL a warning says so. Does nothing the second time.
/// The stacks are taken from outside, by trireme-stacks; without it those of the failing thread alone, from inside.
///
/// Errors  kConfig  TRIREME_REPORT_SIGNAL is no signal that can be caught.
void prepare_rank_reports(const std::string& run_dir, int rank);

}  // namespace trireme::profile
