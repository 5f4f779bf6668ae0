// The synchronisation of the shared-memory transport, all of it: how a rank publishes a phase, how others wait for it,
// and how a group is poisoned. Everything else in the transport is plain memory that these two classes order.
//
// Protocol. Work goes in phases, numbered from 1 on every rank alike. In phase k rank r writes its part into memory of
// its own, publishes k in its flag, waits until every other rank's flag has reached k, and only then reads what they
// wrote. There are two buffers, used in turn: by the time a rank writes the buffer of phase k again (phase k + 2) it
// has seen every rank publish k + 1, and a rank publishes k + 1 only after it has read all of phase k. So neither a
// reader nor a writer needs any further signal.
//
// Two ranks exchange by another rule on the same flags (pair_exchange.h): one pair of buffers goes to and fro. Before phase k a rank has filled
// one of them; after it has seen the peer's k it drains the peer's, refills that very buffer for phase k + 1, and the two swap roles. A buffer
// is thus written only by the rank that has just read it, after the peer published it and before it publishes it itself: the peer touches it
// again only after that. The first chunk of the next call follows the last of this one in the same way, with no phase in between.
//
// Both classes are templates over the atomics, so that the model check (tests/comm/sync_model_test.cpp) runs this very
// file over atomics that enumerate what each memory order permits, and over the orders, so that it can show that every
// single one is needed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace trireme::comm {

/// Every memory order of the protocol that carries meaning. Anything not listed is relaxed.
struct SyncOrders {
  /// Orders the phase's data before the flag, and the flag before the look at `sleepers` (one half of a Dekker
  /// handshake).
  static constexpr std::memory_order kPublish = std::memory_order_seq_cst;
  static constexpr std::memory_order kSeeSleepers = std::memory_order_seq_cst;
  /// The other half: a sleeper announces itself before the kernel compares the flag. (Linux has a full barrier in front
  /// of that comparison, which would do alone; futex(2) does not promise it.)
  static constexpr std::memory_order kAnnounce = std::memory_order_seq_cst;
  /// Orders the flag before the reads of the phase's data.
  static constexpr std::memory_order kReached = std::memory_order_acquire;
  /// Orders the text of the error before the state that shows it, and back.
  static constexpr std::memory_order kPoison = std::memory_order_release;
  static constexpr std::memory_order kSeePoison = std::memory_order_acquire;
};

/// A counter that one rank raises and others wait for. Lives in zeroed shared memory. Differences up to 2^31 are told
/// apart.
///
/// `Atomics` offers `Word` (an atomic uint32_t) and two functions of the operating system's futex: wait(word, expected,
/// limit), which compares and goes to sleep as one step, and wake_all(word).
template <typename Atomics, typename Orders = SyncOrders>
class PhaseFlag {
 public:
  /// No system call unless somebody sleeps.
  void publish(uint32_t value) {
    value_.store(value, Orders::kPublish);
    if (sleepers_.load(Orders::kSeeSleepers) != 0) Atomics::wake_all(value_);
  }

  [[nodiscard]] bool reached(uint32_t value) const { return at_least(value_.load(Orders::kReached), value); }

  /// Sleeps until the flag changes or `limit` has passed, and not at all if `value` is reached already. The caller
  /// looks again.
  void sleep(uint32_t value, std::chrono::milliseconds limit) {
    const uint32_t seen = value_.load(std::memory_order_relaxed);
    if (at_least(seen, value)) return;
    sleepers_.fetch_add(1, Orders::kAnnounce);
    Atomics::wait(value_, seen, limit);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  /// For messages only.
  [[nodiscard]] uint32_t peek() const { return value_.load(std::memory_order_relaxed); }

 private:
  static bool at_least(uint32_t value, uint32_t wanted) { return static_cast<int32_t>(value - wanted) >= 0; }

  typename Atomics::Word value_;
  typename Atomics::Word sleepers_;
};

/// First come, first served: one rank writes why the group is broken, all read it. Lives in zeroed shared memory.
template <typename Atomics, typename Record, typename Orders = SyncOrders>
class PoisonCell {
 public:
  /// Whether this caller may write the record; then it calls publish().
  [[nodiscard]] bool claim() {
    uint32_t clean = kClean;
    return state_.compare_exchange_strong(clean, kClaimed, std::memory_order_relaxed);
  }
  [[nodiscard]] Record& record() { return record_; }
  void publish() { state_.store(kSet, Orders::kPoison); }

  /// The record, or null while there is none to read. A claim whose owner died before publish() stays unreadable; its
  /// death shows elsewhere.
  [[nodiscard]] const Record* read() const { return state_.load(Orders::kSeePoison) == kSet ? &record_ : nullptr; }
  [[nodiscard]] bool claimed() const { return state_.load(std::memory_order_relaxed) != kClean; }

 private:
  static constexpr uint32_t kClean = 0;
  static constexpr uint32_t kClaimed = 1;
  static constexpr uint32_t kSet = 2;

  typename Atomics::Word state_;
  Record record_;
};

}  // namespace trireme::comm
