#include "launch/hang_watch.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/replace_file.h"
#include "base/str.h"
#include "launch/failure_report.h"
#include "launch/hang_words.h"
#include "launch/process_tree.h"
#include "profile/divergence.h"
#include "profile/group_meeting.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using profile::Culprit;
using profile::HangFinding;
using profile::HangInputs;
using profile::StalledCall;
using profile::TraceSnapshot;
using std::chrono::milliseconds;

/// After the first failure: for the others to notice it, so that what they called is in their traces.
constexpr milliseconds kAftermath{250};
/// Looking at a process takes some 0.1 s; of many that are late the first ones say enough.
constexpr size_t kMostLooked = 16;
/// Ranks of one job do not start equally fast. One that has not come to init() gets the limit and as long again as the others took, up to this.
constexpr double kMostStart_s = 5;
/// It reads all that the traces hold, which costs more than the look at what is pending.
constexpr int kLooksPerSlowLook = 4;

uint64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

timespec now_on_the_wall() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

const TraceSnapshot* trace_of(const std::vector<TraceSnapshot>& traces, int rank) {
  const auto found = std::find_if(traces.begin(), traces.end(), [&](const auto& trace) { return trace.rank == rank; });
  return found != traces.end() ? &*found : nullptr;
}

/// The kernel stamps files with the time of its last tick.
bool was_written_since(const std::string& path, const timespec& time) {
  constexpr double kTick_s = 0.05;
  struct stat info{};
  const auto seconds = [](const timespec& one) {
    return static_cast<double>(one.tv_sec) + static_cast<double>(one.tv_nsec) * 1e-9;
  };
  return stat(path.c_str(), &info) == 0 && seconds(info.st_ctim) + kTick_s >= seconds(time);
}

/// A message is counted by each of its ends, a collective by all alike.
std::pair<std::string, uint64_t> name_of(const std::string& group, const std::string& what, int rank, uint64_t call) {
  const bool message = what.starts_with("send") || what.starts_with("recv");
  return {str(group, '|', what, '|', message ? rank : -1), call};
}

}  // namespace

HangWatch::HangWatch(WatchOptions options)
    : options_(std::move(options)),
      started_(now_on_the_wall()),
      started_ns_(now_ns()),
      ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      slow_watch_(options_.run_dir, options_.slow) {
  last_look_ns_ = now_ns();
  thread_ = std::thread([this] { run(); });
}

HangWatch::~HangWatch() { stop(); }

void HangWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HangWatch::rank_started(int rank, pid_t pid) {
  const std::lock_guard lock(mutex_);
  ranks_[rank] = {.pid = pid, .living = true, .memory = {}};
}

void HangWatch::rank_ended(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_[rank].living = false;
}

void HangWatch::rank_failed(int culprit) {
  {
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = culprit;
  }
  changed_.notify_all();
}

void HangWatch::job_is_ending() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
}

std::vector<WatchReport> HangWatch::take() {
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = read(ready_.get(), &ignored, sizeof(ignored));
  const std::lock_guard lock(mutex_);
  std::vector<WatchReport> all(std::make_move_iterator(reports_.begin()), std::make_move_iterator(reports_.end()));
  reports_.clear();
  return all;
}

void HangWatch::post(WatchReport::Kind kind, std::string text) {
  const std::lock_guard lock(mutex_);
  reports_.push_back({kind, std::move(text)});
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(ready_.get(), &one, sizeof(one));
}

milliseconds HangWatch::period() const { return std::clamp(options_.limit / 4, milliseconds(20), milliseconds(1000)); }

std::string HangWatch::trace_path(int rank) const { return str(options_.run_dir, "/trace/rank", rank, ".trace"); }

void HangWatch::run() {
  pthread_setname_np(pthread_self(), "trireme-watch");
  const bool hangs = options_.limit.count() > 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait_for(lock, hangs ? period() : milliseconds(1000), [&] { return stop_ || failed_; });
    const std::optional<int> failed = failed_;
    if ((stop_ || ending_) && !failed) {
      const bool all_ended = !ending_;
      lock.unlock();
      if (all_ended) tell_what_goes_on({});
      return look_for_slow_ranks();
    }
    if (failed) changed_.wait_for(lock, kAftermath, [&] { return stop_; });
    lock.unlock();
    try {
      if (failed) {
        explain_failure(*failed);
      } else {
        look();
        if (++num_looks_ % kLooksPerSlowLook == 0) look_for_slow_ranks();
      }
    } catch (const std::exception& error) {
      log::warn("launch", "the watch for hangs: ", error.what());
    }
    lock.lock();
    if (failed) return;
  }
}

/// Those that are of this attempt. `only_pending` as PendingCalls.
std::vector<TraceSnapshot> HangWatch::read_traces(bool only_pending) {
  std::vector<TraceSnapshot> traces;
  for (int rank = 0; rank < options_.num_ranks; ++rank) {
    const std::string path = trace_path(rank);
    if (!was_written_since(path, started_)) continue;
    Result<TraceSnapshot> trace = only_pending ? pending_calls_.read(path) : profile::read_collective_trace(path);
    if (trace.ok() && trace.value().rank == rank) traces.push_back(std::move(trace.value()));
  }
  return traces;
}

bool HangWatch::has_left(int rank) const {
  const Result<TraceSnapshot> trace = profile::PendingCalls().read(trace_path(rank));
  return trace.ok() && trace.value().closed;
}

pid_t HangWatch::process_of(int rank, const std::vector<TraceSnapshot>& traces) {
  // Below a shell or a wrapper the rank is another process than the one that was started.
  const TraceSnapshot* trace = trace_of(traces, rank);
  if (trace != nullptr && trace->pid > 0 && read_process(trace->pid).pid != 0) return trace->pid;
  const std::lock_guard lock(mutex_);
  return ranks_[rank].pid;
}

void HangWatch::look() {
  const uint64_t now = now_ns();
  look_began_ = now_on_the_wall();
  const auto most = static_cast<uint64_t>(std::chrono::nanoseconds(period() * 2).count());
  // A machine that stood still, or was too busy to let us look, is no rank's fault.
  watched_ns_ += std::min(now - last_look_ns_, most);
  last_look_ns_ = now;
  looks_.clear();
  const std::vector<TraceSnapshot> traces = read_traces(true);
  {
    const std::lock_guard lock(mutex_);
    for (auto& [rank, state] : ranks_) {
      if (state.living) state.memory = read_memory_use(state.pid);
    }
  }
  if (options_.limit.count() == 0) return;
  look_for_stopped_last(traces);
  std::map<std::pair<int, uint64_t>, uint64_t> seen;
  std::set<CallName> in_progress;
  bool too_long = false;
  for (const TraceSnapshot& trace : traces) {
    for (const profile::TraceRecord& record : trace.records) {
      if (record.state != static_cast<uint32_t>(profile::CallState::kStarted)) continue;
      const std::pair<int, uint64_t> key{trace.rank, record.serial};
      const auto before = first_seen_.find(key);
      const uint64_t age = now > record.started_ns ? std::min(now - record.started_ns, most / 2) : 0;
      seen[key] = before != first_seen_.end() ? before->second : watched_ns_ - std::min(watched_ns_, age);
      too_long = too_long ||
                 watched_ns_ - seen[key] >= static_cast<uint64_t>(std::chrono::nanoseconds(options_.limit).count());
      if (!told_.empty() && record.group < trace.groups.size()) {
        in_progress.insert(name_of(trace.groups[record.group], describe_call(trace, record), trace.rank, record.call));
      }
    }
  }
  first_seen_ = std::move(seen);
  tell_what_goes_on(in_progress);
  if (!too_long) return;
  HangInputs inputs = gather_inputs();
  HangFinding finding = profile::find_hang(inputs);
  std::erase_if(finding.calls, [&](const StalledCall& call) { return may_still_be_starting(call, inputs); });
  if (finding.empty()) return;
  // A rank that is late may have calls under way on other threads while its main thread does something else.
  bool again = false;
  for (const TraceSnapshot& trace : inputs.traces) {
    const bool named = std::any_of(finding.calls.begin(), finding.calls.end(), [&](const StalledCall& call) {
      return std::find(call.late.begin(), call.late.end(), trace.rank) != call.late.end();
    });
    if (!named || inputs.cannot_go.contains(trace.rank) || looks_.size() >= kMostLooked) continue;
    ProcessLook& seen_now = looks_[trace.rank];
    seen_now = look_at_process(process_of(trace.rank, inputs.traces), options_.stacks_program, options_.stacks_limit);
    if (seen_now.threads.empty() || seen_now.threads[0].frames.empty() || seen_now.main_thread_communicates()) continue;
    again = inputs.cannot_go.insert(trace.rank).second || again;
  }
  if (again) finding = profile::find_hang(inputs);
  std::erase_if(finding.calls, [&](const StalledCall& call) { return may_still_be_starting(call, inputs); });
  if (!finding.empty()) tell_or_wait(finding, inputs.traces);
}

void HangWatch::look_for_stopped_last(const std::vector<TraceSnapshot>& traces) {
  std::vector<int> living;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [rank, state] : ranks_) {
      if (state.living) living.push_back(rank);
    }
    if (living.size() == ranks_.size()) living.clear();
  }
  const bool all_stopped = !living.empty() && std::all_of(living.begin(), living.end(), [&](int rank) {
    return read_process(process_of(rank, traces)).state == 'T';
  });
  if (!all_stopped) {
    last_stopped_ns_.reset();
    return;
  }
  if (!last_stopped_ns_) last_stopped_ns_ = {watched_ns_, false};
  const double waited_s = static_cast<double>(watched_ns_ - last_stopped_ns_->first) * 1e-9;
  if (last_stopped_ns_->second || waited_s * 1e3 < static_cast<double>(options_.limit.count())) return;
  last_stopped_ns_->second = true;
  for (const int rank : living) {
    looks_[rank] = look_at_process(process_of(rank, traces), looks_.size() < kMostLooked ? options_.stacks_program : "",
                                   options_.stacks_limit);
    if (!looks_[rank].text.empty()) write_report(rank, looks_[rank]);
  }
  HangStory story = tell_stopped_last(living, waited_s, looks_, options_.run_dir);
  add_to_file(std::move(story.json));
  post(WatchReport::Kind::kHang, std::move(story.text));
}

void HangWatch::look_for_slow_ranks() {
  if (!slow_watch_.is_on()) return;
  try {
    for (std::string& text : slow_watch_.look(read_traces(false))) post(WatchReport::Kind::kSlow, std::move(text));
  } catch (const std::exception& error) {
    log::warn("launch", "the watch for slow ranks: ", error.what());
  }
}

HangInputs HangWatch::gather_inputs() {
  HangInputs inputs;
  inputs.traces = read_traces(false);
  inputs.num_ranks = options_.num_ranks;
  inputs.now_ns = now_ns();
  inputs.limit_ns = static_cast<uint64_t>(std::chrono::nanoseconds(options_.limit).count()) * 9 / 10;
  for (int rank = 0; rank < options_.num_ranks; ++rank) {
    const ProcessInfo process = read_process(process_of(rank, inputs.traces));
    const bool still = process.pid == 0 || process.state == 'T' || process.state == 't' || process.state == 'Z';
    if (still) inputs.cannot_go.insert(rank);
  }
  return inputs;
}

bool HangWatch::may_still_be_starting(const StalledCall& call, const HangInputs& inputs) const {
  if (call.call != profile::kMeetingCall) return false;
  const bool none_has_come = std::none_of(call.late.begin(), call.late.end(), [&](int rank) {
    return trace_of(inputs.traces, rank) != nullptr || inputs.cannot_go.contains(rank);
  });
  const double others_took_s = static_cast<double>(inputs.now_ns - started_ns_) * 1e-9 - call.waited_s;
  const double limit_s = 1e-3 * static_cast<double>(options_.limit.count());
  return none_has_come && call.waited_s < limit_s + std::clamp(others_took_s, 0.0, kMostStart_s);
}

/// What is over by now is not told.
void HangWatch::tell_what_goes_on(const std::set<CallName>& in_progress) {
  for (auto told = told_.begin(); told != told_.end();) {
    if (in_progress.contains(told->first)) {
      ++told;
      continue;
    }
    const std::string name = told->first.first.substr(0, told->first.first.find('|'));
    const std::string group = str("group '", name, "'");
    const double after_s = static_cast<double>(now_ns()) * 1e-9 - told->second.since_s;
    post(WatchReport::Kind::kGoesOn,
         str("[launch] ",
             told->first.second == profile::kMeetingCall ? str(group, " has been made")
                                                         : str("call ", told->first.second, " of ", group, " goes on"),
             ", after ", seconds_text(after_s), ".\n"));
    const nlohmann::json entry = {{"kind", "over"},
                                  {"unix_ns", now_ns(CLOCK_REALTIME)},
                                  {"group", name},
                                  {"call", told->first.second},
                                  {"waited_s", after_s}};
    add_to_file(entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    told = told_.erase(told);
  }
}

void HangWatch::tell_or_wait(const HangFinding& finding, const std::vector<TraceSnapshot>& traces) {
  const StalledCall& first = finding.calls.front();
  std::set<int> culprits(finding.circle.begin(), finding.circle.end());
  bool all_busy = !finding.culprits.empty();
  for (const Culprit& culprit : finding.culprits) {
    culprits.insert(culprit.rank);
    const TraceSnapshot* trace = trace_of(traces, culprit.rank);
    const ProcessInfo process = read_process(process_of(culprit.rank, traces));
    all_busy = all_busy && trace != nullptr && !trace->busy.empty() && process.pid != 0 && process.state != 'T' &&
               process.state != 'Z';
  }
  const CallName name = name_of(first.group, first.what, first.waiting.front(), first.call);
  const auto known = told_.find(name);
  const double now = static_cast<double>(now_ns()) * 1e-9;
  if (known != told_.end() && known->second.busy == all_busy &&
      (known->second.culprits == culprits || now < known->second.next_s) && (!all_busy || now < known->second.next_s)) {
    return;
  }
  // Looking took a while; the ranks may have gone on meanwhile.
  for (const Culprit& culprit : finding.culprits) {
    if (looks_.contains(culprit.rank)) continue;
    const bool enough = looks_.size() >= kMostLooked;
    looks_[culprit.rank] =
        look_at_process(process_of(culprit.rank, traces), enough ? "" : options_.stacks_program, options_.stacks_limit);
    if (enough) looks_[culprit.rank].problem = str("the first ", kMostLooked, " ranks were looked at");
  }
  bool still = false;
  for (const TraceSnapshot& trace : read_traces(true)) {
    for (const profile::TraceRecord& record : trace.records) {
      if (record.group >= trace.groups.size()) continue;
      still =
          still || name_of(trace.groups[record.group], describe_call(trace, record), trace.rank, record.call) == name;
    }
  }
  if (!still) return;
  for (const StalledCall& call : finding.calls) {
    Told& told = told_[name_of(call.group, call.what, call.waiting.front(), call.call)];
    if (told.since_s == 0) told.since_s = now - call.waited_s;
    told.culprits = culprits;
    told.busy = all_busy;
    told.next_s = now + std::max(call.waited_s, 1e-3 * static_cast<double>(options_.limit.count()));
  }
  tell(finding, traces);
}

void HangWatch::tell(const HangFinding& finding, const std::vector<TraceSnapshot>& traces) {
  for (const Culprit& culprit : finding.culprits) {
    const ProcessLook& look = looks_[culprit.rank];
    if (!look.text.empty()) write_report(culprit.rank, look);
  }
  HangStory story = tell_hang(finding, traces, looks_, options_.run_dir);
  add_to_file(std::move(story.json));
  post(story.all_busy ? WatchReport::Kind::kBusy : WatchReport::Kind::kHang, std::move(story.text));
}

void HangWatch::add_to_file(std::string entry) {
  json_hangs_.push_back(std::move(entry));
  std::string all = "{\"schema\": 1, \"hangs\": [\n";
  for (size_t i = 0; i < json_hangs_.size(); ++i) all += str(i > 0 ? ",\n" : "", json_hangs_[i]);
  try {
    replace_file(options_.run_dir + "/hang.json", all + "\n]}\n", "launch.watch");
  } catch (const Error& error) {
    log::warn("launch", "the watch for hangs: ", error.what());
  }
}

void HangWatch::write_report(int rank, const ProcessLook& look) {
  std::error_code ignored;
  std::filesystem::create_directories(options_.run_dir + "/reports", ignored);
  const std::string path = str(options_.run_dir, "/reports/rank", rank, ".txt");
  // A rank that a fatal signal ends writes its own, which says more than a look at it while it goes down.
  const bool with_stacks = std::any_of(look.threads.begin(), look.threads.end(),
                                       [](const ThreadLook& thread) { return !thread.frames.empty(); });
  if (was_written_since(path, with_stacks ? look_began_ : started_)) return;
  const std::string temporary = path + ".new";
  std::ofstream file(temporary);
  file << "rank " << rank << " pid " << look.pid << " on " << host_name() << "\n";
  if (!look.threads.empty()) {
    file << look.text;
  } else {
    file << "memory VmHWM " << std::llround(look.memory.most_mb) << " VmRSS " << std::llround(look.memory.now_mb)
         << "\n"
         << "no stacks: " << look.problem << "\n";
  }
  file.close();
  if (file.fail() || std::rename(temporary.c_str(), path.c_str()) != 0) {
    log::warn("launch", "cannot write ", path, ": ", std::strerror(errno));
  }
}

void HangWatch::explain_failure(int culprit) {
  look_began_ = now_on_the_wall();
  std::vector<TraceSnapshot> traces = read_traces(false);
  if (const auto divergence = profile::find_divergence(traces)) {
    post(WatchReport::Kind::kExplanation, str("[launch] Why: ", divergence->words(), "\n"));
  } else {
    // A call that failed is one that somebody did not come to.
    HangInputs inputs;
    inputs.num_ranks = options_.num_ranks;
    inputs.now_ns = now_ns();
    for (TraceSnapshot& trace : traces) {
      for (profile::TraceRecord& record : trace.records) {
        if (record.state == static_cast<uint32_t>(profile::CallState::kFailed)) {
          record.state = static_cast<uint32_t>(profile::CallState::kStarted);
        }
      }
    }
    inputs.traces = traces;
    const HangFinding finding = profile::find_hang(inputs);
    for (const Culprit& other : finding.culprits) {
      const TraceSnapshot* trace = trace_of(traces, other.rank);
      if (other.rank == culprit || trace == nullptr || !trace->closed || other.in_a_call) continue;
      post(WatchReport::Kind::kExplanation,
           str("[launch] Why: rank ", other.rank, " left in good order without ", call_text(finding.calls.front()),
               ", which ", ranks_text(finding.calls.front().waiting),
               finding.calls.front().waiting.size() == 1 ? " was" : " were",
               " in. It made a call less than the others, or they one more.\n"));
    }
  }
  for (int rank = 0; rank < options_.num_ranks; ++rank) {
    Rank state;
    {
      const std::lock_guard lock(mutex_);
      state = ranks_[rank];
      state.living = state.living && !stop_;
    }
    const std::string path = str(options_.run_dir, "/reports/rank", rank, ".txt");
    ProcessLook look;
    look.pid = state.pid;
    if (state.living) look = look_at_process(process_of(rank, traces), options_.stacks_program, options_.stacks_limit);
    const auto has_ended = [&] {
      const ProcessInfo process = read_process(look.pid);
      return process.pid == 0 || process.state == 'Z';
    };
    // It may also end while it is looked at; what it wrote itself is the better report.
    if (look.gone() || (!look.problem.empty() && has_ended())) {
      if (was_written_since(path, started_)) continue;
      look.threads.clear();
      look.memory = state.memory;
      look.problem = "it had ended; the memory is that of the last look before";
    }
    write_report(rank, look);
  }
}

}  // namespace trireme::launch
