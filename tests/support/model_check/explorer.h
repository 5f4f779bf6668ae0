// Runs a small program in every way: all interleavings of its threads' atomic operations, and all values that each load
// may return (memory.h). Threads are fibers on one thread of the machine; an execution is a list of choices, and the
// next one is the same list with its last choice changed. A state that was seen before is not continued (its
// continuations were all tried), so the search is exhaustive and ends.
//
// Operations on plain data are no points of choice: whether they race depends on happens-before alone, which is the
// same wherever in between they run.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "support/model_check/memory.h"

namespace trireme::model {

/// The code under test. Frames of run() are abandoned without being unwound: they must own nothing.
class Program {
 public:
  virtual ~Program() = default;
  [[nodiscard]] virtual int num_threads() const = 0;
  virtual void reset() = 0;  ///< makes the shared words and cells anew, in the same order each time
  virtual void run(int thread) = 0;
  virtual void check_end() {}  ///< after all threads have ended
};

struct Outcome {
  bool ok = true;
  std::string failure;      ///< one line: "race: ...", "stale value: ...", "lost wake: ..."
  std::string execution;    ///< the steps that led to it
  uint64_t executions = 0;  ///< that ran to their end
  uint64_t states = 0;
  uint64_t steps = 0;
};

class Explorer {
 public:
  /// Throws when more than `max_states` states are reached: an unfinished search proves nothing.
  [[nodiscard]] static Outcome explore(Program& program, uint64_t max_states = 5'000'000);

  /// The one that runs; for the model's atomics and for programs.
  [[nodiscard]] static Explorer& current();

  [[nodiscard]] Memory& memory() { return memory_; }
  [[nodiscard]] int thread() const { return running_; }

  /// Before every atomic operation: lets any other thread run first.
  void point();
  /// 0 .. count-1, all of them in turn.
  [[nodiscard]] int choose(int count);
  /// The thread's local state is described by `number` and its place in the code alone; without this, by all that it
  /// has seen since the last call.
  void local_state(uint64_t number);
  void observed(const char* what, int word, uint32_t value);

  /// Until wake() on this word.
  void wait(int word);
  void wake(int word);
  /// Until the word that was read last has a newer message than the one that was read; the next read gives one of
  /// those. For loops that look at one word: looking again at the same message changes nothing.
  void await_newer();
  void set_last_read(int word, int message);
  /// From now on loads of this thread read the newest message: what is stored becomes visible in the end.
  void set_fresh(bool fresh) { threads_[static_cast<size_t>(running_)].fresh = fresh; }
  [[nodiscard]] bool fresh() const { return threads_[static_cast<size_t>(running_)].fresh; }

  [[noreturn]] void fail(const std::string& what);

 private:
  enum class Status : uint8_t { kReady, kWaiting, kAwaiting, kDone };
  struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Status status = Status::kReady;
    int word = 0;
    int message = 0;
    int last_word = 0;
    int last_message = 0;
    bool granted = false;
    bool fresh = false;
    uint64_t local = 0;
  };
  struct Choice {
    uint8_t chosen;
    uint8_t count;
  };
  struct Step {
    int thread;
    const char* what;
    int word;
    uint32_t value;
  };

  static void entry();
  void run_once();
  [[nodiscard]] bool next_execution();
  [[nodiscard]] bool enabled(int thread) const;
  void pick();
  void to_main();
  [[nodiscard]] uint64_t state() const;
  [[nodiscard]] std::string told() const;

  Program* program_ = nullptr;
  uint64_t max_states_ = 0;
  int num_threads_ = 0;
  int running_ = 0;
  Memory memory_;
  std::array<Thread, kMaxThreads> threads_;
  ucontext_t main_{};
  std::vector<Choice> choices_;
  size_t position_ = 0;
  std::unordered_set<uint64_t> seen_;
  std::vector<Step> log_;
  Outcome outcome_;
};

}  // namespace trireme::model
