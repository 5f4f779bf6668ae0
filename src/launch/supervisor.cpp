#include "launch/supervisor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <span>

#include "base/log.h"
#include "base/str.h"
#include "launch/failure_report.h"
#include "launch/process_tree.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

/// After SIGKILL nothing should be left within moments; what is (a process in an uninterruptible wait) is told.
constexpr milliseconds kKillLimit{10'000};

/// Looks that must find nobody where other programs' processes come and go so fast that no single look is certain.
constexpr int kEmptyScans = 50;

/// How long a rank that seems to have lost a peer is not named as the cause while a peer is being torn down. A death is
/// to be named within a second.
constexpr milliseconds kSuspectLimit{600};

enum Tag : uint64_t { kNotices, kSignals, kRoom, kWatch, kFirstStream };

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string seconds(milliseconds duration) { return str(static_cast<double>(duration.count()) / 1000, " s"); }

}  // namespace

ErrorKind kind_of_start_failure(int attempt, int rank, int error_number) {
  const bool of_the_machine = error_number == EAGAIN || error_number == ENOMEM || error_number == EMFILE ||
                              error_number == ENFILE || error_number == ENOSYS || error_number == EPERM ||
                              error_number == EIO;
  return attempt > 0 || rank > 0 || of_the_machine ? ErrorKind::kIo : ErrorKind::kConfig;
}

Supervisor::Supervisor(const SupervisorContext& context, Attempt attempt, JobResult& result)
    : context_(context),
      spec_(context.spec),
      attempt_(std::move(attempt)),
      result_(result),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  result_.ends.clear();
  result_.first.reset();
  result_.first_log.clear();
  result_.explanations.clear();
}

Supervisor::~Supervisor() {
  if (guardian_.orders >= 0) close(guardian_.orders);  // if we are here by an exception: kills everything
  if (guardian_.notices >= 0) close(guardian_.notices);
  if (guardian_.pid > 0) waitpid(guardian_.pid, nullptr, 0);
}

void Supervisor::start(rendezvous::ListenSocket socket) {
  attempt_.port = std::to_string(socket.port);
  attempt_.stacks_program = context_.stacks_program;
  if (context_.hang_after.count() > 0) attempt_.watcher = std::to_string(getpid());
  relay_ = std::make_unique<Relay>(
      spec_, attempt_.run_dir,
      str(date_and_time("%Y-%m-%d %H:%M:%S"), " job ", attempt_.job_id, ", attempt ", attempt_.number + 1),
      context_.console);
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<RankStart> ranks;
  for (int rank = 0; rank < spec_.num_ranks; ++rank) {
    RankStart start;
    start.executable = context_.executable;
    start.command = spec_.command;
    start.env = with_changes(rank_variables(spec_, attempt_, rank));
    start.in_fd = rank == 0 ? STDIN_FILENO : null.get();
    start.out_fd = relay_->stream(2 * static_cast<size_t>(rank)).write_end.get();
    start.err_fd = relay_->stream(2 * static_cast<size_t>(rank) + 1).write_end.get();
    ranks.push_back(std::move(start));
    living_[rank] = 0;
  }
  if (spec_.announce) {
    log::info("launch", "job ", attempt_.job_id, ": ", spec_.num_ranks, spec_.num_ranks == 1 ? " rank" : " ranks",
              ", logs in ", short_path(attempt_.run_dir), "/logs, store ",
              rendezvous::endpoint(spec_.master_addr, socket.port),
              sets_one_thread(spec_) ? "; OMP_NUM_THREADS was not set: 1 for each rank" : "");
  }
  started_ = Clock::now();
  started_ns_ = monotonic_ns();
  guardian_ = start_guardian(ranks, context_.inherited);
  rendezvous::TcpStoreServer::Options options;
  options.listen_fd = socket.fd.release();
  server_ = rendezvous::start_tcp_store_server(options);
  fcntl(guardian_.notices, F_SETFL, O_NONBLOCK);
  watch(guardian_.notices, kNotices);
  watch(context_.signal_fd, kSignals);
  watch(context_.room_fd, kRoom);
  WatchOptions watched;
  watched.run_dir = attempt_.run_dir;
  watched.num_ranks = spec_.num_ranks;
  watched.limit = context_.hang_after;
  watched.slow = context_.slow;
  watched.stacks_program = context_.stacks_program;
  hang_watch_ = std::make_unique<HangWatch>(std::move(watched));
  watch(hang_watch_->fd(), kWatch);
  for (size_t i = 0; i < relay_->size(); ++i) {
    relay_->stream(i).write_end.reset();
    watch(relay_->stream(i).read_end.get(), kFirstStream + i);
  }
  num_open_streams_ = relay_->size();
}

void Supervisor::watch(int fd, uint64_t tag) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Supervisor::run() {
  // The socket is bound here and handed to the server: a port that was picked and released could be taken by others.
  start(rendezvous::listen_tcp(spec_.master_addr, spec_.master_port));
  while (!finished()) wait_once();
  hang_watch_->stop();
  take_watch_reports();
  if (!cannot_start_.empty()) throw Error(cannot_start_kind_, cannot_start_);
  if (!strays_.empty() && phase_ == Phase::kRunning) {
    say(str("[launch] ended what the ranks left running: ", join(strays_), ".\n"));
  }
}

void Supervisor::wait_once() {
  int timeout = -1;
  if (deadline_ != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
    timeout = static_cast<int>(std::max<int64_t>(left.count(), 0));
  }
  std::array<epoll_event, 32> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout);
  // Deaths first: what the survivors print about them comes after the report.
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<size_t>(i)].data.u64 < kFirstStream) handle(events[static_cast<size_t>(i)].data.u64);
  }
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<size_t>(i)].data.u64 >= kFirstStream) handle(events[static_cast<size_t>(i)].data.u64);
  }
  if (Clock::now() >= deadline_) deadline_passed();
  if (all_gone_) end_streams();
}

/// Nobody of the job is left, so all that it ever wrote is in the pipes by now. A process that is none of it may hold one
/// open for as long as it likes.
void Supervisor::end_streams() {
  std::vector<size_t> held;
  for (size_t i = 0; i < relay_->size(); ++i) {
    if (!relay_->finish(i) && (held.empty() || held.back() != i / 2)) held.push_back(i / 2);
  }
  num_open_streams_ = 0;
  if (held.empty() || guardian_.pid == 0) return;
  say(str("[launch] a process outside the job still holds the output of rank", held.size() == 1 ? " " : "s ",
          join(held), "; it is not waited for.\n"));
}

void Supervisor::handle(uint64_t tag) {
  if (tag == kNotices) return take_notices();
  if (tag == kSignals) return take_signal();
  if (tag == kRoom) return read_streams_again();
  if (tag == kWatch) return take_watch_reports();
  const auto index = static_cast<size_t>(tag - kFirstStream);
  if (context_.console.full()) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, relay_->stream(index).read_end.get(), nullptr);
    paused_.insert(index);
  } else if (!relay_->pump(index)) {
    --num_open_streams_;  // its descriptor is closed, which took it out of the epoll
  }
}

void Supervisor::read_streams_again() {
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = read(context_.room_fd, &ignored, sizeof(ignored));
  for (const size_t index : paused_) watch(relay_->stream(index).read_end.get(), kFirstStream + index);
  paused_.clear();
}

void Supervisor::take_notices() {
  while (true) {
    Notice notice;
    const ssize_t got = read(guardian_.notices, &notice, sizeof(notice));
    if (got == static_cast<ssize_t>(sizeof(notice))) {
      take_notice(notice);
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, guardian_.notices, nullptr);
    if (!all_gone_) guardian_lost();
    return;
  }
}

void Supervisor::take_notice(const Notice& notice) {
  switch (notice.kind) {
    case Notice::Kind::kStarted:
      living_[notice.rank] = notice.pid;
      hang_watch_->rank_started(notice.rank, notice.pid);
      log::debug("launch", "rank ", notice.rank, " is pid ", notice.pid);
      return;
    case Notice::Kind::kCannotExec:
      cannot_start_ = str("[launch.start] cannot execute '", spec_.command.front(), "' as rank ", notice.rank, ": ",
                          std::strerror(notice.value), notice.value == EMFILE ? "; raise RLIMIT_NOFILE." : ".");
      cannot_start_kind_ = kind_of_start_failure(attempt_.number, notice.rank, notice.value);
      return;
    case Notice::Kind::kStray:
      strays_.push_back(str(notice.name, " (pid ", notice.pid, ")"));
      return;
    case Notice::Kind::kEnded:
      return rank_ended(notice);
    case Notice::Kind::kAllGone:
      all_gone_ = true;
      deadline_ = Clock::time_point::max();
      return;
  }
}

void Supervisor::rank_ended(const Notice& notice) {
  RankEnd end;
  end.rank = notice.rank;
  end.pid = notice.pid;
  (notice.killed != 0 ? end.signal : end.exit_code) = notice.value;
  end.by_launcher = signal_sent_ != 0;
  end.after_s = static_cast<double>(notice.monotonic_ns - started_ns_) * 1e-9;
  end.unix_ns = notice.unix_ns;
  living_.erase(end.rank);
  hang_watch_->rank_ended(end.rank);
  result_.ends.push_back(end);
  judge(end);
}

/// Whose end is the cause? The first failure, except that the kernel closes the sockets of a dying process long before
/// it reports its death (freeing gigabytes takes a while): a survivor may notice, report a lost peer and be gone first.
void Supervisor::judge(const RankEnd& end) {
  const bool lost_peer = end.signal == 0 && end.exit_code == exit_code(ErrorKind::kPeerLost);
  if (phase_ == Phase::kRunning && end.failed()) {
    if (!lost_peer || (!another_is_dying() && !another_has_left())) return report_first(end);
    suspect_ = end;
    return enter(Phase::kSuspecting, kSuspectLimit);
  }
  if (phase_ != Phase::kSuspecting) return;
  if (end.failed() && !lost_peer) return report_first(end);
  if (!another_is_dying() && !another_has_left()) report_first(suspect_);
}

bool Supervisor::another_is_dying() const {
  return std::any_of(living_.begin(), living_.end(), [](const auto& rank) { return is_exiting(rank.second); });
}

/// A rank that failed and handles that in good order leaves its groups first, which its peers notice, and takes its time to end.
bool Supervisor::another_has_left() const {
  return std::any_of(living_.begin(), living_.end(),
                     [&](const auto& rank) { return hang_watch_->has_left(rank.first); });
}

void Supervisor::take_watch_reports() {
  for (const WatchReport& report : hang_watch_->take()) {
    say(report.text);
    for (int rank = 0; rank < spec_.num_ranks; ++rank) relay_->note(rank, report.text);
    if (report.kind == WatchReport::Kind::kHang) server_->local()->set(rendezvous::kHangNoticeKey, report.text);
    if (report.kind == WatchReport::Kind::kExplanation) result_.explanations.push_back(report.text);
  }
}

void Supervisor::report_first(const RankEnd& end) {
  result_.first = end;
  // Its last words come before our words about it.
  relay_->drain(2 * static_cast<size_t>(end.rank));
  relay_->drain(2 * static_cast<size_t>(end.rank) + 1);
  if (end.signal == SIGKILL) hint_ = sigkill_hint(end.pid, context_.oom_kills);
  server_->local()->set(rendezvous::kDeathNoticeKey, describe(end, hint_));
  result_.first_log = log_with_words(end.rank);
  say(first_failure_line(end, hint_, spec_.num_ranks, attempt_.run_dir, result_.first_log));
  hang_watch_->rank_failed(end.rank);
  enter(Phase::kReporting, spec_.report_grace);
}

std::string Supervisor::log_with_words(int rank) const {
  if (relay_->stream(2 * static_cast<size_t>(rank) + 1).wrote) return str("logs/rank", rank, ".err");
  return relay_->stream(2 * static_cast<size_t>(rank)).wrote ? str("logs/rank", rank, ".out") : std::string{};
}

void Supervisor::enter(Phase phase, Clock::duration after) {
  phase_ = phase;
  deadline_ = Clock::now() + after;
}

void Supervisor::order(Order::Kind kind, int value) const {
  const Order text{kind, value};
  [[maybe_unused]] const ssize_t written = write(guardian_.orders, &text, sizeof(text));
}

void Supervisor::take_signal() {
  signalfd_siginfo info{};
  if (read(context_.signal_fd, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return;
  const auto signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGUSR1 || signal == SIGUSR2) return order(Order::Kind::kSignalRanks, signal);
  if (signal_sent_ != 0 && result_.interrupted_by != 0) {
    say(str("[launch] ", signal_name(signal), " again: SIGKILL for all that is left.\n"));
    order(Order::Kind::kKillAll);
    return enter(Phase::kKilling, kKillLimit);
  }
  result_.interrupted_by = signal;
  hang_watch_->job_is_ending();
  signal_sent_ = signal;
  say(str("[launch] ", signal_name(signal), ": passed on to the ranks; SIGKILL follows in ", seconds(spec_.grace),
          ", a second signal brings it at once.\n"));
  order(Order::Kind::kSignalRanks, signal);
  enter(Phase::kTerminating, spec_.grace);
}

void Supervisor::deadline_passed() {
  switch (phase_) {
    case Phase::kRunning:
      deadline_ = Clock::time_point::max();
      return;
    case Phase::kSuspecting:
      return report_first(suspect_);
    case Phase::kReporting:
      signal_sent_ = SIGTERM;
      order(Order::Kind::kSignalRanks, SIGTERM);
      return enter(Phase::kTerminating, spec_.grace);
    case Phase::kTerminating:
      if (!living_.empty()) {
        std::vector<int> ranks;
        ranks.reserve(living_.size());
        for (const auto& [rank, pid] : living_) ranks.push_back(rank);
        say(str("[launch] ", ranks.size() == 1 ? "rank " : "ranks ", join(ranks), " did not end within ",
                seconds(spec_.grace), " of ", signal_name(signal_sent_), ": SIGKILL.\n"));
      }
      order(Order::Kind::kKillAll);
      return enter(Phase::kKilling, kKillLimit);
    case Phase::kKilling: {
      constexpr size_t kNamed = 8;
      const std::vector<ProcessInfo> all = descendants(guardian_.pid);
      std::vector<std::string> left;
      for (const ProcessInfo& process : std::span(all).first(std::min(all.size(), kNamed))) {
        left.push_back(str(process.name, " (pid ", process.pid, ", state ", process.state, ")"));
      }
      if (all.size() > kNamed) left.push_back(str(all.size() - kNamed, " more"));
      say(str("[launch] still there ", seconds(kKillLimit), " after SIGKILL: ", join(left), "; the guardian process ",
              guardian_.pid, " goes on waiting for them.\n"));
      all_gone_ = true;
      num_open_streams_ = 0;
      guardian_.pid = 0;  // not waited for
      return;
    }
  }
}

/// Somebody killed the guardian. The kernel has killed the ranks with it; what they started is found by its environment.
void Supervisor::guardian_lost() {
  say(str("[launch] FAILED: the guardian process (pid ", guardian_.pid,
          ") was killed from outside; so are all ranks.\n"));
  if (!result_.first && result_.interrupted_by == 0) result_.interrupted_by = SIGKILL;
  const std::string tag = "TRIREME_JOB_ID=" + attempt_.job_id;
  const auto until = Clock::now() + kKillLimit;
  // A rank may fork while it is being killed, and its child be missed by the look that no longer sees the rank.
  for (int empty = 0, certain = 0; Clock::now() < until && certain < 2 && empty < kEmptyScans;) {
    EnvScan scan = processes_with_env(tag);
    empty = scan.found.empty() ? empty + 1 : 0;
    certain = scan.found.empty() && scan.complete ? certain + 1 : 0;
    // With all that is below them, looked for before the first one dies: a job within the job has another id.
    for (const ProcessInfo& process : std::vector(scan.found)) {
      for (ProcessInfo& below : descendants(process.pid)) scan.found.push_back(std::move(below));
    }
    for (const ProcessInfo& process : scan.found) signal_exactly(process, SIGKILL);
    if (!scan.found.empty()) usleep(1000);
  }
  all_gone_ = true;
  deadline_ = Clock::time_point::max();
}

}  // namespace trireme::launch
