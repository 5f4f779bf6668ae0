#include "support/model_check/explorer.h"

#include <sstream>
#include <stdexcept>

namespace trireme::model {
namespace {

constexpr size_t kStackBytes = 64 << 10;
Explorer* current_explorer = nullptr;

size_t at(int index) { return static_cast<size_t>(index); }

}  // namespace

Explorer& Explorer::current() { return *current_explorer; }

Outcome Explorer::explore(Program& program, uint64_t max_states) {
  Explorer explorer;
  current_explorer = &explorer;
  explorer.program_ = &program;
  explorer.max_states_ = max_states;
  explorer.num_threads_ = program.num_threads();
  for (int t = 0; t < explorer.num_threads_; ++t) {
    explorer.threads_[at(t)].stack = std::make_unique<char[]>(kStackBytes);
  }
  do {
    explorer.run_once();
  } while (explorer.outcome_.ok && explorer.seen_.size() <= max_states && explorer.next_execution());
  explorer.outcome_.states = explorer.seen_.size();
  current_explorer = nullptr;
  if (explorer.seen_.size() > max_states) throw std::length_error("model: too many states; make the program smaller");
  return explorer.outcome_;
}

void Explorer::run_once() {
  memory_.reset(num_threads_);
  program_->reset();
  log_.clear();
  position_ = 0;
  for (int t = 0; t < num_threads_; ++t) {
    Thread& thread = threads_[at(t)];
    thread.status = Status::kReady;
    thread.granted = false;
    thread.fresh = false;
    thread.local = 0;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStackBytes;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, &Explorer::entry, 0);
  }
  // As if a thread had just ended, so that any may be the first.
  running_ = -1;
  pick();
}

void Explorer::entry() {
  Explorer& self = current();
  self.program_->run(self.running_);
  Thread& thread = self.threads_[at(self.running_)];
  thread.status = Status::kDone;
  self.pick();
}

bool Explorer::next_execution() {
  while (!choices_.empty()) {
    Choice& last = choices_.back();
    if (++last.chosen < last.count) return true;
    choices_.pop_back();
  }
  return false;
}

bool Explorer::enabled(int t) const {
  const Thread& thread = threads_[at(t)];
  if (thread.status == Status::kAwaiting) return memory_.newest(thread.word) > thread.message;
  return thread.status == Status::kReady;
}

uint64_t Explorer::state() const {
  std::array<bool, kMaxThreads> alive{};
  uint64_t hash = 5;
  // What a thread awaits follows from its view, so it needs no place in the hash.
  for (int t = 0; t < num_threads_; ++t) {
    const Thread& thread = threads_[at(t)];
    alive[at(t)] = thread.status != Status::kDone;
    hash = mix(hash, static_cast<uint64_t>(thread.status) << 8 | (thread.fresh ? 1U : 0U));
    hash = mix(hash, thread.local);
  }
  return mix(hash, memory_.hash(alive));
}

int Explorer::choose(int count) {
  if (count == 1) return 0;
  if (position_ == choices_.size()) choices_.push_back({0, static_cast<uint8_t>(count)});
  const Choice& choice = choices_[position_++];
  if (choice.count != count) throw std::logic_error("model: the program does not repeat");
  return choice.chosen;
}

void Explorer::pick() {
  std::array<int, kMaxThreads> candidates{};
  int count = 0;
  bool all_done = true;
  // The running thread first: the fewer switches, the faster, and the easier to read a failure is.
  for (int i = 0; i < num_threads_; ++i) {
    const int t = running_ < 0 ? i : (running_ + i) % num_threads_;
    if (enabled(t)) candidates[at(count++)] = t;
    all_done = all_done && threads_[at(t)].status == Status::kDone;
  }
  if (all_done) {
    ++outcome_.executions;
    program_->check_end();
    to_main();
    return;
  }
  if (count == 0) {
    bool sleeping = false;
    for (int t = 0; t < num_threads_; ++t) sleeping = sleeping || threads_[at(t)].status == Status::kWaiting;
    fail(sleeping ? "lost wake: a thread sleeps and nobody will wake it"
                  : "stuck: threads wait for stores that never come");
  }
  if (position_ == choices_.size()) {
    if (!seen_.insert(state()).second || seen_.size() > max_states_) {
      to_main();
      return;
    }
  }
  ++outcome_.steps;
  const int previous = running_;
  running_ = candidates[at(choose(count))];
  Thread& next = threads_[at(running_)];
  if (next.status == Status::kAwaiting) {
    next.status = Status::kReady;
    memory_.skip_to(running_, next.word, next.message + 1);
  }
  next.granted = true;
  if (running_ == previous) return;
  ucontext_t& from = previous < 0 ? main_ : threads_[at(previous)].context;
  swapcontext(&from, &next.context);
}

void Explorer::to_main() {
  // At the very beginning we are there already.
  if (running_ < 0) return;
  const int from = running_;
  running_ = -2;
  swapcontext(&threads_[at(from)].context, &main_);
}

void Explorer::point() {
  Thread& thread = threads_[at(running_)];
  if (!thread.granted) pick();
  thread.granted = false;
}

void Explorer::local_state(uint64_t number) { threads_[at(running_)].local = mix(1, number); }

void Explorer::observed(const char* what, int word, uint32_t value) {
  uint64_t& local = threads_[at(running_)].local;
  // What happened belongs to it: a compare-exchange may see the same value whether it succeeds or fails.
  local = mix(mix(mix(local, reinterpret_cast<uintptr_t>(what)), static_cast<uint64_t>(word)), value);
  log_.push_back({running_, what, word, value});
}

void Explorer::wait(int word) {
  Thread& thread = threads_[at(running_)];
  thread.status = Status::kWaiting;
  thread.word = word;
  pick();
  thread.granted = false;
}

void Explorer::wake(int word) {
  for (int t = 0; t < num_threads_; ++t) {
    Thread& thread = threads_[at(t)];
    if (thread.status == Status::kWaiting && thread.word == word) thread.status = Status::kReady;
  }
}

void Explorer::set_last_read(int word, int message) {
  threads_[at(running_)].last_word = word;
  threads_[at(running_)].last_message = message;
}

void Explorer::await_newer() {
  Thread& thread = threads_[at(running_)];
  thread.status = Status::kAwaiting;
  thread.word = thread.last_word;
  thread.message = thread.last_message;
  pick();
  thread.granted = false;
}

std::string Explorer::told() const {
  std::ostringstream out;
  for (const Step& step : log_) {
    out << "  thread " << step.thread << ": " << step.what << " #" << step.word << " = " << step.value << "\n";
  }
  return std::move(out).str();
}

void Explorer::fail(const std::string& what) {
  outcome_.ok = false;
  outcome_.failure = what;
  outcome_.execution = told();
  to_main();
  std::abort();  // an abandoned fiber never runs again
}

}  // namespace trireme::model
