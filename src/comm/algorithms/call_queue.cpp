#include "comm/algorithms/call_queue.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/str.h"
#include "comm/transport/wait_policy.h"
#include "profile/collective_trace.h"
#include "trireme/base/error.h"

namespace trireme::comm {

struct Call {
  CallInfo info;
  CallQueue::Body body;
  CallQueue::Done done;
  std::exception_ptr error;
  std::atomic<bool> finished{false};
  std::atomic<uint32_t> owners{0};
  bool body_over = false;  // seen by the executing thread only
  uint64_t trace_slot = 0;
  Call* next = nullptr;
};

namespace {

// Never destroyed: a Call may be given back by a static of the user's.
class CallPool {
 public:
  Call* take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        Call* call = free_.back();
        free_.pop_back();
        return call;
      }
    }
    return new Call;
  }
  void give_back(Call* call) noexcept {
    call->body = nullptr;
    call->done = nullptr;
    call->error = nullptr;
    call->finished.store(false, std::memory_order_relaxed);
    call->body_over = false;
    call->next = nullptr;
    const std::lock_guard lock(mutex_);
    try {
      free_.push_back(call);
    } catch (...) {
      delete call;
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Call*> free_;
};

CallPool& pool() {
  static auto* instance = new CallPool;
  return *instance;
}

/// How many forks lie between the process that first asked and this one: tells a forked child from its parent by a load, where getpid() is a
/// system call.
std::atomic<uint32_t> g_forks{0};
uint32_t num_forks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return g_forks.load(std::memory_order_relaxed);
}

profile::TraceRecord record_of(const CallInfo& info, uint16_t group) {
  profile::TraceRecord record;
  record.call = info.call;
  record.bytes = info.count * size_of(info.dtype);
  std::copy_n(info.dims.begin(), std::size(record.dims), record.dims);
  record.step = info.step;
  record.root = info.root;
  record.group = group;
  record.op = static_cast<uint8_t>(info.op);
  record.dtype = static_cast<uint8_t>(info.dtype);
  record.reduce = static_cast<uint8_t>(info.reduce);
  record.num_dims = info.num_dims;
  std::copy_n(info.label.begin(), info.label.size(), record.label);
  return record;
}

}  // namespace

CallPtr::CallPtr(const CallPtr& other) noexcept : call_(other.call_) {
  if (call_ != nullptr) call_->owners.fetch_add(1, std::memory_order_relaxed);
}
CallPtr::~CallPtr() {
  if (call_ != nullptr && call_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) pool().give_back(call_);
}

// One mutex guards the list and who executes. It is held for some tens of nanoseconds at a time and never while a call runs.
// Shared with whoever is inside: a call's done function may destroy the queue under the thread that executes it.
struct CallQueue::Impl {
  using Clock = std::chrono::steady_clock;
  /// How often the progress thread looks while the group is active. Calls that are waited for at once are never seen by it.
  static constexpr std::chrono::microseconds kPoll{1000};
  /// After so many looks with nothing issued it sleeps until it is woken.
  static constexpr int kIdleLooks = 20;

  std::string group_name;
  std::string thread_name;
  profile::CollectiveTrace* trace;
  uint16_t trace_group = 0;

  std::mutex mutex;
  std::condition_variable call_finished;
  std::condition_variable progress_wanted;
  Call* head = nullptr;
  Call* tail = nullptr;
  bool executing = false;
  std::thread::id executor;  // while executing
  int waiters = 0;
  uint64_t last_issued = 0;
  std::atomic<uint64_t> last_finished{0};  // counted before the done function, which may already let the group go
  bool kicked = false;
  bool parked = true;
  bool stopping = false;
  std::thread progress;
  const pid_t owner = getpid();
  const uint32_t forks = num_forks();

  /// A child that went on as the rank would publish phases beside it, and both would read what neither has sent.
  void require_no_fork(const CallInfo& info) const {
    if (num_forks() == forks) return;
    throw Error(ErrorKind::kUnsupported,
                str("[comm.", to_string(info.op), "] group '", group_name,
                    "': this process was forked from a rank and is none itself; ",
                    "only the rank may call. Fork before init(), or execute another program in the child."));
  }

  void ensure_progress(std::shared_ptr<Impl> self);

  void push(const CallPtr& call) {
    Call* raw = call.get();
    raw->owners.fetch_add(1, std::memory_order_relaxed);  // the list's own
    (tail == nullptr ? head : tail->next) = raw;
    tail = raw;
  }
  CallPtr pop() {
    Call* call = head;
    head = call->next;
    if (head == nullptr) tail = nullptr;
    call->next = nullptr;
    return CallPtr(call);
  }

  // Without the mutex.
  void run(Call& call) {
    if (trace != nullptr) trace->started(call.trace_slot);
    try {
      call.body(call.info);
    } catch (...) {
      call.error = std::current_exception();
    }
    if (trace != nullptr) trace->finished(call.trace_slot, call.error == nullptr);
    call.body_over = true;
    last_finished.store(call.info.call, std::memory_order_release);
    if (call.done) call.done(call.error);
  }

  // With the mutex held; gives it up while the call runs.
  void execute_front(std::unique_lock<std::mutex>& lock) {
    const CallPtr call = pop();
    lock.unlock();
    run(*call);
    lock.lock();
    call->finished.store(true, std::memory_order_release);
    if (waiters > 0) call_finished.notify_all();
  }

  /// Executes from the front, as long as `more()` holds, with the mutex held and nobody executing.
  template <typename More>
  void execute_while(std::unique_lock<std::mutex>& lock, More&& more) {
    executing = true;
    executor = std::this_thread::get_id();
    while (more()) execute_front(lock);
    executing = false;
    executor = {};
    if (waiters > 0) call_finished.notify_all();
  }

  void progress_loop() {
    pthread_setname_np(pthread_self(), thread_name.c_str());
    set_background_thread(true);
    std::unique_lock lock(mutex);
    uint64_t seen_issued = 0;
    const Call* seen_head = nullptr;
    uint64_t seen_head_call = 0;
    int idle_looks = 0;
    while (!stopping) {
      const bool left_over = head != nullptr && head == seen_head && head->info.call == seen_head_call;
      if (head != nullptr && !executing && (kicked || left_over)) {
        kicked = false;
        execute_while(lock, [&] { return head != nullptr && !stopping; });
        seen_head = nullptr;
        idle_looks = 0;
        continue;
      }
      idle_looks = last_issued == seen_issued && head == nullptr ? idle_looks + 1 : 0;
      seen_issued = last_issued;
      seen_head = head;
      seen_head_call = head != nullptr ? head->info.call : 0;
      if (idle_looks >= kIdleLooks) {
        parked = true;
        progress_wanted.wait(lock, [&] { return !parked || kicked || stopping; });
        parked = false;
        idle_looks = 0;
      } else {
        progress_wanted.wait_for(lock, kPoll, [&] { return (kicked && head != nullptr && !executing) || stopping; });
        if (executing) kicked = false;  // whoever executes now goes on to the end of the queue or to what it waits for
      }
    }
  }
};

CallQueue::CallQueue(std::string group_name, std::string thread_name, profile::CollectiveTrace* trace,
                     std::optional<uint16_t> trace_group)
    : impl_(std::make_shared<Impl>()) {
  impl_->group_name = std::move(group_name);
  impl_->thread_name = std::move(thread_name);
  impl_->trace = trace;
  if (trace != nullptr) impl_->trace_group = trace_group ? *trace_group : trace->register_group(impl_->group_name, {});
}

CallQueue::~CallQueue() {
  if (impl_->owner != getpid()) {
    // A forked child has no progress thread, and perhaps a mutex that nobody will ever unlock: it may only forget.
    static_cast<void>(new std::shared_ptr<Impl>(impl_));  // NOLINT(bugprone-unhandled-exception-at-new)
    return;
  }
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    impl_->progress_wanted.notify_all();
  }
  if (impl_->progress.get_id() == std::this_thread::get_id()) {
    impl_->progress.detach();  // a done function holds the last reference to the group; the loop ends when it returns
  } else if (impl_->progress.joinable()) {
    impl_->progress.join();
  }
  while (impl_->head != nullptr) {
    const CallPtr call = impl_->pop();
    call->error = std::make_exception_ptr(
        Error(ErrorKind::kInternal,
              str("[comm.", to_string(call->info.op), "] group '", impl_->group_name, "' call ", call->info.call,
                  " was never executed: the group was destroyed first. Wait for every call before the group goes.")));
    if (impl_->trace != nullptr) impl_->trace->finished(call->trace_slot, false);
    if (call->done) call->done(call->error);
    call->finished.store(true, std::memory_order_release);
  }
}

void CallQueue::Impl::ensure_progress(std::shared_ptr<Impl> self) {
  if (!progress.joinable()) {
    try {
      progress = std::thread([impl = std::move(self)] { impl->progress_loop(); });
    } catch (const std::system_error& error) {
      throw Error(ErrorKind::kOutOfMemory, str("[comm] group '", group_name,
                                               "': the progress thread cannot be started: ", error.code().message(),
                                               ". Raise 'ulimit -u' or the pids limit of the cgroup."));
    }
    parked = false;
  } else if (parked) {
    parked = false;
    progress_wanted.notify_one();
  }
}

CallPtr CallQueue::issue(CallInfo info, Body body, Done done) {
  impl_->require_no_fork(info);
  CallPtr call(pool().take());
  call->owners.store(1, std::memory_order_relaxed);
  call->body = std::move(body);
  call->done = std::move(done);

  const std::lock_guard lock(impl_->mutex);
  impl_->ensure_progress(impl_);  // may throw, so before the call has a number and a place in the list
  info.call = ++impl_->last_issued;
  call->info = info;
  if (impl_->trace != nullptr) call->trace_slot = impl_->trace->queued(record_of(info, impl_->trace_group));
  impl_->push(call);
  return call;
}

void CallQueue::wait(const CallPtr& call) {
  if (!call->finished.load(std::memory_order_acquire)) {
    impl_->require_no_fork(call->info);
    const std::shared_ptr<Impl> impl = impl_;
    std::unique_lock lock(impl->mutex);
    const auto unfinished = [&] { return !call->finished.load(std::memory_order_relaxed); };
    if (impl->executing && impl->executor == std::this_thread::get_id()) {
      // From a done function: its own call is over but for that, later ones are next in the list.
      while (!call->body_over && unfinished()) {
        TRIREME_CHECK(impl->head != nullptr, "the body of a call waits for a call of its own queue");
        impl->execute_front(lock);
      }
    } else {
      while (unfinished()) {
        if (!impl->executing) {
          impl->execute_while(lock, unfinished);
        } else {
          ++impl->waiters;
          impl->call_finished.wait(lock, [&] { return !unfinished() || !impl->executing; });
          --impl->waiters;
        }
      }
    }
  }
  if (call->error) std::rethrow_exception(call->error);
}

void CallQueue::kick() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->head == nullptr || impl_->executing) return;
  impl_->kicked = true;
  impl_->progress_wanted.notify_one();
}

bool CallQueue::finished(const Call& call) noexcept { return call.finished.load(std::memory_order_acquire); }
std::exception_ptr CallQueue::error(const Call& call) noexcept { return finished(call) ? call.error : nullptr; }
const CallInfo& CallQueue::info(const Call& call) noexcept { return call.info; }

uint64_t CallQueue::last_issued() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->last_issued;
}
uint64_t CallQueue::last_finished() const noexcept { return impl_->last_finished.load(std::memory_order_acquire); }

}  // namespace trireme::comm
