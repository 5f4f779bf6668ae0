// What sync.h is instantiated with in the model check: atomic words, futex calls and plain data of the model.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "support/model_check/explorer.h"

namespace trireme::model {

/// The part of std::atomic<uint32_t> that is used; each member is one step.
class ModelWord {
 public:
  ModelWord() : word_(Explorer::current().memory().add_word()) {}
  ModelWord(const ModelWord&) = delete;
  ModelWord& operator=(const ModelWord&) = delete;

  [[nodiscard]] uint32_t load(std::memory_order order) const {
    Explorer& explorer = Explorer::current();
    explorer.point();
    return load_now(order, "load");
  }

  void store(uint32_t value, std::memory_order order) {
    Explorer& explorer = Explorer::current();
    explorer.point();
    explorer.memory().store(explorer.thread(), word_, order, value);
    explorer.observed("store", word_, value);
  }

  uint32_t fetch_add(uint32_t value, std::memory_order order) { return add(value, order, "fetch_add, before"); }
  uint32_t fetch_sub(uint32_t value, std::memory_order order) { return add(0U - value, order, "fetch_sub, before"); }

  bool compare_exchange_strong(uint32_t& expected, uint32_t desired, std::memory_order order) {
    Explorer& explorer = Explorer::current();
    Memory& memory = explorer.memory();
    explorer.point();
    const int thread = explorer.thread();
    const int newest = memory.newest(word_);
    // It succeeds on the newest message only, and may fail on any that it may read and that differs.
    std::array<int, 256> outcomes;
    int count = 0;
    for (int m = memory.first_readable(thread, word_, order); m <= newest; ++m) {
      if (m == newest || memory.value_at(word_, m) != expected) outcomes[static_cast<size_t>(count++)] = m;
    }
    const int chosen = outcomes[static_cast<size_t>(explorer.choose(count))];
    if (memory.value_at(word_, chosen) == expected) {
      memory.exchange(thread, word_, order, desired);
      explorer.observed("compare_exchange, success", word_, desired);
      return true;
    }
    const std::memory_order failure = order == std::memory_order_acq_rel   ? std::memory_order_acquire
                                      : order == std::memory_order_release ? std::memory_order_relaxed
                                                                           : order;
    expected = memory.load(thread, word_, failure, chosen);
    explorer.observed("compare_exchange, failure", word_, expected);
    return false;
  }

 private:
  friend struct ModelAtomics;

  uint32_t load_now(std::memory_order order, const char* what) const {
    Explorer& explorer = Explorer::current();
    Memory& memory = explorer.memory();
    const int newest = memory.newest(word_);
    const int first = explorer.fresh() ? newest : memory.first_readable(explorer.thread(), word_, order);
    // The newest first: most executions go on at once then.
    const int message = newest - explorer.choose(newest - first + 1);
    const uint32_t value = memory.load(explorer.thread(), word_, order, message);
    explorer.set_last_read(word_, message);
    explorer.observed(what, word_, value);
    return value;
  }

  uint32_t add(uint32_t value, std::memory_order order, const char* what) {
    Explorer& explorer = Explorer::current();
    Memory& memory = explorer.memory();
    explorer.point();
    const uint32_t old = memory.value_at(word_, memory.newest(word_));
    memory.exchange(explorer.thread(), word_, order, old + value);
    explorer.observed(what, word_, old);
    return old;
  }

  int word_;
};

/// The futex as futex(2) describes it: load, comparison and going to sleep are one step, totally ordered with all futex
/// calls on this word. The load counts as seq_cst; the full barrier that Linux has in front of it is not relied on.
/// There is no time limit: a wake that is lost shows as a thread that sleeps for ever.
struct ModelAtomics {
  using Word = ModelWord;

  static void wait(Word& word, uint32_t expected, std::chrono::milliseconds /*limit*/) {
    Explorer& explorer = Explorer::current();
    explorer.point();
    explorer.memory().futex_look(explorer.thread(), word.word_);
    if (word.load_now(std::memory_order_seq_cst, "futex wait sees") == expected) explorer.wait(word.word_);
  }
  static void wake_all(Word& word) {
    Explorer& explorer = Explorer::current();
    explorer.point();
    explorer.memory().futex_woken(explorer.thread(), word.word_);
    explorer.wake(word.word_);
    explorer.observed("futex wake", word.word_, 0);
  }
};

/// Plain memory: a race fails the execution.
class PlainData {
 public:
  PlainData() : cell_(Explorer::current().memory().add_cell()) {}
  void write(uint32_t value) {
    Explorer& explorer = Explorer::current();
    if (const char* wrong = explorer.memory().write_cell(explorer.thread(), cell_, value)) {
      explorer.fail(std::string("race: ") + wrong);
    }
    explorer.observed("write data", cell_, value);
  }
  [[nodiscard]] uint32_t read() const {
    Explorer& explorer = Explorer::current();
    uint32_t value = 0;
    if (const char* wrong = explorer.memory().read_cell(explorer.thread(), cell_, value)) {
      explorer.fail(std::string("race: ") + wrong);
    }
    explorer.observed("read data", cell_, value);
    return value;
  }

 private:
  int cell_;
};

/// The same memory seen as bytes that a race does not end: whatever the machine may return is returned, so that the
/// program's own comparison finds the stale value.
class RacyData {
 public:
  void write(uint32_t value) { word_.store(value, std::memory_order_relaxed); }
  [[nodiscard]] uint32_t read() const { return word_.load(std::memory_order_relaxed); }

 private:
  ModelWord word_;
};

}  // namespace trireme::model
