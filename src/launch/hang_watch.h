// Looks at the collective traces of the ranks while they run, from the launcher: says who keeps the others waiting and what that rank does
// instead, and after a failure who called something else. It costs the ranks nothing and works when they are stopped or spin.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "launch/process_look.h"
#include "launch/slow_watch.h"
#include "profile/hang_analysis.h"

namespace trireme::launch {

/// What the watch has found, for people, in whole lines.
struct WatchReport {
  enum class Kind { kHang, kBusy, kGoesOn, kExplanation, kSlow };
  Kind kind = Kind::kHang;
  std::string text;
};

struct WatchOptions {
  std::string run_dir;  ///< the traces are trace/rank<r>.trace in it
  int num_ranks = 0;
  std::chrono::milliseconds limit{3000};  ///< a call that waits longer is a hang; 0: hangs are not watched
  profile::StragglerOptions slow;         ///< when a rank that the others wait for in every step is told
  std::string stacks_program;
  std::chrono::milliseconds stacks_limit{2000};  ///< for one process
};

/// Purpose       A thread that looks every quarter of the limit, at most once a second; at every fourth look, and at the end, for slow ranks too.
/// Invariants    A hang is told once for each set of culprits; that it is over is told too. After the first failure of a rank no hang is.
/// Thread safety All members from one thread, the launcher's event loop.
/// Files         hang.json (all hangs so far), slow.json (slow_watch.h) and reports/rank<r>.txt (stacks and memory of a rank that was looked at) in the run folder.
class HangWatch {
 public:
  explicit HangWatch(WatchOptions options);
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  void rank_started(int rank, pid_t pid);
  void rank_ended(int rank);
  /// The first failure: writes the reports of all ranks that live and looks for calls that differ. `culprit` ended first.
  void rank_failed(int culprit);

  /// The launcher is ending the ranks: what they wait for is no hang any more.
  void job_is_ending();

  /// Ends the look that is going on, at the latest with its time limit; take() then gives the last reports. [blocking]
  void stop();

  /// An eventfd that is readable while there is something to take.
  [[nodiscard]] int fd() const { return ready_.get(); }
  [[nodiscard]] std::vector<WatchReport> take();

  /// Whether this rank's trace says that it left in good order, though its process may live for a moment yet. Reads its file.
  [[nodiscard]] bool has_left(int rank) const;

 private:
  struct Rank {
    pid_t pid = 0;
    bool living = false;
    MemoryUse memory;  ///< when it was last looked at
  };
  /// A hang that was told and is not over.
  struct Told {
    std::set<int> culprits;
    bool busy = false;
    double next_s = 0;  ///< busy: when to say it again
    double since_s = 0;
  };
  using CallName = std::pair<std::string, uint64_t>;  ///< of a stalled call: group and what, number

  void run();
  void look();
  void look_for_slow_ranks();
  /// Where all others have ended nobody waits for a rank that is stopped, but the launcher.
  void look_for_stopped_last(const std::vector<profile::TraceSnapshot>& traces);
  void tell_or_wait(const profile::HangFinding& finding, const std::vector<profile::TraceSnapshot>& traces);
  void tell(const profile::HangFinding& finding, const std::vector<profile::TraceSnapshot>& traces);
  void tell_what_goes_on(const std::set<CallName>& stalled);
  void explain_failure(int culprit);
  [[nodiscard]] std::vector<profile::TraceSnapshot> read_traces(bool only_pending);
  [[nodiscard]] profile::HangInputs gather_inputs();
  [[nodiscard]] bool may_still_be_starting(const profile::StalledCall& call, const profile::HangInputs& inputs) const;
  [[nodiscard]] pid_t process_of(int rank, const std::vector<profile::TraceSnapshot>& traces);
  void add_to_file(std::string entry);
  void write_report(int rank, const ProcessLook& look);
  void post(WatchReport::Kind kind, std::string text);
  [[nodiscard]] std::string trace_path(int rank) const;
  [[nodiscard]] std::chrono::milliseconds period() const;

  const WatchOptions options_;
  const timespec started_;     ///< wall clock: an older trace is another job's
  const uint64_t started_ns_;  ///< CLOCK_MONOTONIC
  Fd ready_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Rank> ranks_;
  std::deque<WatchReport> reports_;
  std::optional<int> failed_;
  bool stop_ = false;
  bool ending_ = false;

  // Of the thread.
  profile::PendingCalls pending_calls_;
  SlowWatch slow_watch_;
  int num_looks_ = 0;
  std::map<int, ProcessLook> looks_;  ///< of this look
  timespec look_began_{};             ///< wall clock
  uint64_t watched_ns_ = 0;           ///< time that the watch itself has seen pass
  uint64_t last_look_ns_ = 0;
  std::map<std::pair<int, uint64_t>, uint64_t>
      first_seen_;  ///< (rank, serial) of unfinished calls: watched_ns_ of the first look
  std::optional<std::pair<uint64_t, bool>>
      last_stopped_ns_;  ///< all that live are stopped: watched_ns_ of the first look, told
  std::map<CallName, Told> told_;
  std::vector<std::string> json_hangs_;
  std::thread thread_;
};

}  // namespace trireme::launch
