#include "launch/hang_watch.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/replace_file.h"
#include "base/str.h"
#include "launch/failure_report.h"
#include "launch/process_tree.h"
#include "profile/divergence.h"
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
constexpr size_t kMostLines = 6;
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

std::string ranks_text(const std::vector<int>& ranks) {
  return str(ranks.size() == 1 ? "rank " : "ranks ", join(ranks));
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

std::string busy_text(const profile::BusyState& busy) {
  std::string text = busy.what;
  if (busy.fraction >= 0) text += str(", ", std::lround(busy.fraction * 100), " %");
  return text +
         str(", for ", seconds_text(static_cast<double>(now_ns()) * 1e-9 - static_cast<double>(busy.since_ns) * 1e-9));
}

const TraceSnapshot* trace_of(const std::vector<TraceSnapshot>& traces, int rank) {
  const auto found = std::find_if(traces.begin(), traces.end(), [&](const auto& trace) { return trace.rank == rank; });
  return found != traces.end() ? &*found : nullptr;
}

std::string call_text(const StalledCall& call) {
  return str("group '", call.group, "' call ", call.call, ", ", call.what,
             call.step > 0 ? str(", step ", call.step) : "");
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
      lock.unlock();
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
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) continue;
    // The kernel stamps files with the time of its last tick.
    const double changed = static_cast<double>(info.st_ctim.tv_sec) + static_cast<double>(info.st_ctim.tv_nsec) * 1e-9;
    if (changed + 0.05 < static_cast<double>(started_.tv_sec) + static_cast<double>(started_.tv_nsec) * 1e-9) continue;
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
  if (finding.empty()) return;
  // A rank that is late may have calls under way on other threads while its main thread does something else.
  bool again = false;
  for (const TraceSnapshot& trace : inputs.traces) {
    const bool named = std::any_of(finding.calls.begin(), finding.calls.end(), [&](const StalledCall& call) {
      return std::find(call.late.begin(), call.late.end(), trace.rank) != call.late.end();
    });
    if (!named || inputs.cannot_go.contains(trace.rank)) continue;
    ProcessLook& seen_now = looks_[trace.rank];
    seen_now = look_at_process(process_of(trace.rank, inputs.traces), options_.stacks_program, options_.stacks_limit);
    if (seen_now.threads.empty() || seen_now.threads[0].frames.empty() || seen_now.main_thread_communicates()) continue;
    again = inputs.cannot_go.insert(trace.rank).second || again;
  }
  if (again) finding = profile::find_hang(inputs);
  if (!finding.empty()) tell_or_wait(finding, inputs.traces);
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
  inputs.now_ns = now_ns();
  inputs.limit_ns = static_cast<uint64_t>(std::chrono::nanoseconds(options_.limit).count()) * 9 / 10;
  for (int rank = 0; rank < options_.num_ranks; ++rank) {
    const ProcessInfo process = read_process(process_of(rank, inputs.traces));
    const bool still = process.pid == 0 || process.state == 'T' || process.state == 't' || process.state == 'Z';
    if (still) inputs.cannot_go.insert(rank);
  }
  return inputs;
}

/// What is over by now is not told.
void HangWatch::tell_what_goes_on(const std::set<CallName>& in_progress) {
  for (auto told = told_.begin(); told != told_.end();) {
    if (in_progress.contains(told->first)) {
      ++told;
      continue;
    }
    const std::string& name = told->first.first;
    post(WatchReport::Kind::kGoesOn,
         str("[launch] call ", told->first.second, " of group '", name.substr(0, name.find('|')), "' goes on, after ",
             seconds_text(static_cast<double>(now_ns()) * 1e-9 - told->second.since_s), ".\n"));
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
    if (!looks_.contains(culprit.rank)) {
      looks_[culprit.rank] =
          look_at_process(process_of(culprit.rank, traces), options_.stacks_program, options_.stacks_limit);
    }
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
  const StalledCall& first = finding.calls.front();
  bool all_busy = !finding.culprits.empty();
  nlohmann::json json = {{"unix_ns", now_ns(CLOCK_REALTIME)},
                         {"group", first.group},
                         {"call", first.call},
                         {"what", first.what},
                         {"step", first.step},
                         {"waiting", first.waiting},
                         {"late", first.late},
                         {"waited_s", first.waited_s},
                         {"last_common_call", first.last_common},
                         {"circle", finding.circle},
                         {"culprits", nlohmann::json::array()}};
  std::string details;
  for (size_t i = 1; i < finding.calls.size() && i < kMostLines; ++i) {
    const StalledCall& call = finding.calls[i];
    details += str("[launch]   Also ", call_text(call), ": ", ranks_text(call.waiting),
                   call.waiting.size() == 1 ? " waits" : " wait", " for ", ranks_text(call.late), ".\n");
  }
  for (size_t i = 0; i < finding.links.size() && i < kMostLines; ++i)
    details += str("[launch]   ", finding.links[i], ".\n");
  if (!finding.circle.empty()) {
    details += str("[launch]   ", ranks_text(finding.circle), " wait for each other: none of them can go on.\n");
  }
  for (const Culprit& culprit : finding.culprits) {
    const TraceSnapshot* trace = trace_of(traces, culprit.rank);
    const ProcessLook& look = looks_[culprit.rank];
    const bool busy = trace != nullptr && !trace->busy.empty() && !look.gone() && !look.stopped();
    all_busy = all_busy && busy;
    std::string doing;
    std::string kind;
    if (trace == nullptr && look.gone()) {
      kind = "gone", doing = "has ended";
    } else if (look.gone()) {
      kind = "gone", doing = trace->closed ? "has ended in good order" : "is dead";
    } else if (look.stopped()) {
      kind = "stopped";
      doing = look.state == 't' ? "is held by a debugger"
                                : str("is stopped (SIGSTOP); kill -CONT ", look.pid, " lets it go on");
    } else if (busy) {
      kind = "busy", doing = str("is busy: ", busy_text(trace->busy.back()));
    } else if (trace == nullptr) {
      kind = "absent", doing = str("has not come to trireme::init(): it ", look.words());
    } else if (culprit.in_a_call && look.main_thread_communicates()) {
      kind = "in a call", doing = str("is still at ", culprit.call, ", where all are: it ", look.words());
    } else {
      kind = "own code", doing = str("is in its own code: it ", look.words());
    }
    const bool file = !look.text.empty();
    if (file) write_report(culprit.rank, look);
    details +=
        str("[launch]   rank ", culprit.rank, " (pid ", look.pid, ") ", doing, ". ",
            file ? str("All its threads: ", short_path(options_.run_dir), "/reports/rank", culprit.rank, ".txt.") : "",
            "\n");
    json["culprits"].push_back({{"rank", culprit.rank}, {"pid", look.pid}, {"doing", kind}, {"words", doing}});
  }
  if (const auto divergence = profile::find_divergence(traces)) {
    details += str("[launch]   Before that, ", divergence->words(), "\n");
    json["divergence"] = divergence->words();
    json["odd"] = divergence->odd;
  }
  json["kind"] = all_busy ? "busy" : "hang";
  const std::string common = first.last_common == 0
                                 ? std::string("None of this kind was finished by all before.")
                                 : str("The last one that all finished is ", first.last_common,
                                       first.last_common_what.empty() ? "" : ", ", first.last_common_what, ".");
  post(all_busy ? WatchReport::Kind::kBusy : WatchReport::Kind::kHang,
       str("[launch] ", all_busy ? "Waiting: " : "HANG: ", call_text(first), ": ", ranks_text(first.waiting),
           first.waiting.size() == 1 ? " has" : " have", " waited ", seconds_text(first.waited_s), " for ",
           ranks_text(first.late), ". ", common, "\n", details));
  json_hangs_.push_back(json.dump());
  std::string all = "{\"schema\": 1, \"hangs\": [\n";
  for (size_t i = 0; i < json_hangs_.size(); ++i) all += str(i > 0 ? ",\n" : "", json_hangs_[i]);
  replace_file(options_.run_dir + "/hang.json", all + "\n]}\n", "launch.watch");
}

void HangWatch::write_report(int rank, const ProcessLook& look) {
  std::error_code ignored;
  std::filesystem::create_directories(options_.run_dir + "/reports", ignored);
  const std::string path = str(options_.run_dir, "/reports/rank", rank, ".txt");
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
  std::vector<TraceSnapshot> traces = read_traces(false);
  if (const auto divergence = profile::find_divergence(traces)) {
    post(WatchReport::Kind::kExplanation, str("[launch] Why: ", divergence->words(), "\n"));
  } else {
    // A call that failed is one that somebody did not come to.
    HangInputs inputs;
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
      if (access(path.c_str(), F_OK) == 0) continue;
      look.threads.clear();
      look.memory = state.memory;
      look.problem = "it had ended; the memory is that of the last look before";
    }
    write_report(rank, look);
  }
}

}  // namespace trireme::launch
