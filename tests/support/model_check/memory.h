// An operational, view-based memory for a few threads: what the C++20 memory model permits, made explicit, so that a
// search can try all of it.
//
// Every word has a list of messages, its modification order. A thread has a view: for every word the oldest message
// that it may still read. A load may return any message from there on. Release (and stronger) stores put the thread's
// view into the message, acquire (and stronger) loads take it over. A read-modify-write reads the newest message, and
// its own message carries on the view of that (a release sequence). A seq_cst load reads nothing older than what any
// earlier seq_cst access to this word wrote or read; "earlier" is the order in which the search runs them, which is
// the total order S of the standard. Plain data has no messages: a thread's view counts the accesses that happen
// before, and an access that conflicts with one that the view does not know is a data race.
//
// Covered: coherence, happens-before through release and acquire and through release sequences, S among seq_cst
// accesses (atomics.order 4.1), stale reads of any age, failing compare-exchanges that read stale values, races.
//
// Left out, with the reason why it cannot matter here:
//  - Load buffering (a load that sees a store which depends on it, or which its own thread's later store led to): the
//    search runs each thread's operations in their order. No code here stores a value before the load that guards it.
//  - Stores that enter the modification order before older ones: every word here has one thread that stores, or is
//    only changed by read-modify-writes, which are adjacent by definition. append() checks that.
//  - Executions in which S contradicts happens-before, which C++20 permits when seq_cst and acquire accesses to a word
//    mix (seen only on POWER with leading fences).
//  - Fences, consume and mixed sizes: the protocol has none.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace trireme::model {

inline constexpr int kMaxThreads = 3;
inline constexpr int kMaxWords = 40;
inline constexpr int kMaxCells = 18;

/// What a thread, or a message, knows: for words the index of a message, for data cells how many writes and reads of
/// each thread.
struct View {
  std::array<uint8_t, kMaxWords> words = {};
  std::array<uint8_t, static_cast<size_t>(kMaxCells* kMaxThreads) * 2> accesses = {};

  void join(const View& other);
  [[nodiscard]] static size_t write_index(int cell, int thread) { return index(cell, thread); }
  [[nodiscard]] static size_t read_index(int cell, int thread) { return index(cell, thread) + 1; }

 private:
  [[nodiscard]] static size_t index(int cell, int thread) {
    return (static_cast<size_t>(cell) * kMaxThreads + static_cast<size_t>(thread)) * 2;
  }
};

struct Message {
  uint32_t value = 0;
  View view;
};

struct Word {
  std::vector<Message> messages;
  uint8_t sc_floor = 0;     ///< the newest message that a seq_cst access wrote or read
  uint8_t futex_floor = 0;  ///< of futex calls on this word, which are totally ordered: what the last waker knew
  int storing_thread = -1;
};

struct Cell {
  uint32_t value = 0;
  std::array<uint8_t, kMaxThreads> writes = {};
  std::array<uint8_t, kMaxThreads> reads = {};
};

/// The memory of one execution. No scheduling here: each function is one step of one thread.
class Memory {
 public:
  void reset(int num_threads);
  [[nodiscard]] int add_word();
  [[nodiscard]] int add_cell();

  /// The messages first .. newest(word) may be read.
  [[nodiscard]] int first_readable(int thread, int word, std::memory_order order) const;
  [[nodiscard]] int newest(int word) const;
  [[nodiscard]] uint32_t value_at(int word, int message) const;
  uint32_t load(int thread, int word, std::memory_order order, int message);
  void store(int thread, int word, std::memory_order order, uint32_t value);
  /// Returns the old value.
  uint32_t exchange(int thread, int word, std::memory_order order, uint32_t value);
  void skip_to(int thread, int word, int message);  ///< this thread reads nothing older any more

  void futex_woken(int thread, int word);  ///< a wake call
  void futex_look(int thread, int word);   ///< the beginning of a wait call

  /// Null, or what is wrong.
  [[nodiscard]] const char* read_cell(int thread, int cell, uint32_t& value);
  [[nodiscard]] const char* write_cell(int thread, int cell, uint32_t value);

  /// Equal for memories that no continuation can tell apart: messages that no living thread can read are left out.
  [[nodiscard]] uint64_t hash(const std::array<bool, kMaxThreads>& alive) const;

 private:
  void append(int thread, int word, uint32_t value, const View& view);
  int num_threads_ = 0;
  int num_words_ = 0;
  int num_cells_ = 0;
  std::array<Word, kMaxWords> words_;
  std::array<Cell, kMaxCells> cells_;
  std::array<View, kMaxThreads> views_;
};

[[nodiscard]] inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccd;
  return hash ^ (hash >> 32);
}

}  // namespace trireme::model
