// One attempt at a job: starts the guardian, and is the event loop of the launcher until no process is left.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/console.h"
#include "launch/guardian.h"
#include "launch/hang_watch.h"
#include "launch/job.h"
#include "launch/rank_env.h"
#include "launch/relay.h"
#include "rendezvous/socket.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::launch {

/// Why a rank could not be started: kConfig, which promises that nothing was started, only where the program of the first
/// attempt's first rank is at fault; kIo when other ranks or attempts (counted from 0) ran already, or the machine refused.
[[nodiscard]] ErrorKind kind_of_start_failure(int attempt, int rank, int error_number);

/// What outlives an attempt.
struct SupervisorContext {
  const JobSpec& spec;
  std::string executable;  ///< found before the first attempt
  Console& console;
  int room_fd;    ///< raised by the console when it has room again
  int signal_fd;  ///< the forwarded signals
  Inherited inherited;
  long long oom_kills = 0;  ///< before the start
  std::chrono::milliseconds hang_after{0};
  profile::StragglerOptions slow;
  std::string stacks_program;
};

/// Purpose    see the file's head. After the first failure: death notice, report, `report_grace`, SIGTERM, `grace`,
///            SIGKILL; after a signal to the launcher: that signal, `grace`, SIGKILL; after a second one: SIGKILL.
/// Invariants what ended before the launcher first signalled is an end of its own, all later ones are by_launcher.
class Supervisor {
 public:
  Supervisor(const SupervisorContext& context, Attempt attempt, JobResult& result);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Returns when everything has ended; fills in the result's ends, first and interrupted_by. [blocking]
  void run();
  [[nodiscard]] const std::string& hint() const { return hint_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kRunning, kSuspecting, kReporting, kTerminating, kKilling };

  void start(rendezvous::ListenSocket socket);
  void watch(int fd, uint64_t tag) const;
  void wait_once();
  void handle(uint64_t tag);
  void take_notices();
  void take_notice(const Notice& notice);
  void rank_ended(const Notice& notice);
  void judge(const RankEnd& end);
  [[nodiscard]] bool another_is_dying() const;
  void report_first(const RankEnd& end);
  [[nodiscard]] std::string log_with_words(int rank) const;
  void take_signal();
  void deadline_passed();
  void order(Order::Kind kind, int value = 0) const;
  void enter(Phase phase, Clock::duration after);
  void guardian_lost();
  void read_streams_again();
  void end_streams();
  void take_watch_reports();
  [[nodiscard]] bool another_has_left() const;
  void say(const std::string& text) { context_.console.write(2, text); }
  [[nodiscard]] bool finished() const { return all_gone_ && num_open_streams_ == 0; }

  const SupervisorContext& context_;
  const JobSpec& spec_;
  Attempt attempt_;
  JobResult& result_;
  std::unique_ptr<Relay> relay_;
  std::unique_ptr<HangWatch> hang_watch_;
  std::unique_ptr<rendezvous::TcpStoreServer> server_;
  Guardian guardian_;
  Fd epoll_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point started_;
  int64_t started_ns_ = 0;
  int signal_sent_ = 0;
  bool all_gone_ = false;
  size_t num_open_streams_ = 0;
  std::map<int, pid_t> living_;
  RankEnd suspect_;  ///< ended as one that lost a peer, while a peer is still dying
  std::set<size_t> paused_;
  std::vector<std::string> strays_;
  std::string cannot_start_;
  ErrorKind cannot_start_kind_ = ErrorKind::kConfig;
  std::string hint_;
};

}  // namespace trireme::launch
