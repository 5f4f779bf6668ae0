// Small programs on sync.h, over the model's atomics: how the transport uses the two classes, with data that says
// whether a value is stale.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "comm/transport/shm/sync.h"
#include "support/model_check/model_atomics.h"

namespace trireme::comm {

/// SyncOrders, each of which a test may weaken.
struct ModelOrders {
  static inline std::memory_order kPublish = SyncOrders::kPublish;
  static inline std::memory_order kSeeSleepers = SyncOrders::kSeeSleepers;
  static inline std::memory_order kAnnounce = SyncOrders::kAnnounce;
  static inline std::memory_order kReached = SyncOrders::kReached;
  static inline std::memory_order kPoison = SyncOrders::kPoison;
  static inline std::memory_order kSeePoison = SyncOrders::kSeePoison;
};

using ModelFlag = PhaseFlag<model::ModelAtomics, ModelOrders>;

enum class Waiting { kSpin, kSleep, kEither };

/// As Window::await_slowly(). `place` is a number of its own for each call and phase. A waiting thread may meet old
/// values in one round of sleeping; after that it sees new ones.
inline void await(ModelFlag& flag, uint32_t value, Waiting waiting, uint64_t place) {
  model::Explorer& explorer = model::Explorer::current();
  explorer.local_state(place * 4);
  if (flag.reached(value)) return;
  if (waiting == Waiting::kSpin || (waiting == Waiting::kEither && explorer.choose(2) == 0)) {
    do {
      explorer.local_state(place * 4 + 1);
      explorer.await_newer();
    } while (!flag.reached(value));
    return;
  }
  for (bool first = true;; first = false) {
    explorer.set_fresh(!first);
    explorer.local_state(place * 4 + (first ? 2 : 3));
    flag.sleep(value, std::chrono::milliseconds(50));
    if (flag.reached(value)) break;
  }
  explorer.set_fresh(false);
}

inline void expect_value(uint32_t got, uint32_t want, const char* where) {
  if (got == want) return;
  model::Explorer::current().fail("stale value: " + std::to_string(got) + " instead of " + std::to_string(want) + " " +
                                  where);
}

/// All ranks exchange a value per phase.
struct PhasesShape {
  int ranks = 2;
  uint32_t phases = 3;
  Waiting waiting = Waiting::kEither;
  uint32_t sleepers = 3;       ///< ranks below this one wait so, the others spin
  uint32_t lanes = 2;          ///< flags per rank, used in turn, as Window does; 1: one flag counts all phases
  uint32_t buffers = 2;        ///< 1 is a mistake
  bool publish_first = false;  ///< a mistake
};
template <typename Data>
class Phases final : public model::Program {
 public:
  using Shape = PhasesShape;
  explicit Phases(const Shape& shape) : shape_(shape) {}
  [[nodiscard]] int num_threads() const override { return shape_.ranks; }
  void reset() override { shared_.emplace(); }
  void run(int thread) override {
    const auto rank = static_cast<uint32_t>(thread);
    const auto n = static_cast<uint32_t>(shape_.ranks);
    const Waiting waiting = rank < shape_.sleepers ? shape_.waiting : Waiting::kSpin;
    for (uint32_t k = 1; k <= shape_.phases; ++k) {
      const uint32_t buffer = k % shape_.buffers;
      if (shape_.publish_first) flag(rank, k).publish(k);
      data(rank, buffer).write(value(rank, k));
      if (!shape_.publish_first) flag(rank, k).publish(k);
      for (uint32_t r = 0; r < n; ++r) {
        if (r != rank) await(flag(r, k), k, waiting, k * 10 + r);
      }
      for (uint32_t r = 0; r < n; ++r) {
        if (r != rank) expect_value(data(r, buffer).read(), value(r, k), "in a phase");
      }
    }
    model::Explorer::current().local_state(0);
  }

 private:
  struct Shared {
    std::array<std::array<ModelFlag, 2>, 3> flags;
    std::array<std::array<Data, 2>, 3> data;
  };
  static uint32_t value(uint32_t rank, uint32_t phase) { return 100 * (rank + 1) + phase; }
  ModelFlag& flag(uint32_t rank, uint32_t phase) { return shared_->flags[rank][phase % shape_.lanes]; }
  Data& data(uint32_t rank, uint32_t buffer) { return shared_->data[rank][buffer]; }

  Shape shape_;
  std::optional<Shared> shared_;
};

/// An all-reduce of two phases in one buffer, as window_all_reduce.cpp for more than two ranks: each rank writes its
/// parts, reduces its own part of all, in place, and reads the others' results; then the other buffer.
struct ReduceShape {
  int ranks = 3;
  uint32_t calls = 2;
  Waiting waiting = Waiting::kSpin;
};
template <typename Data>
class ReduceInPlace final : public model::Program {
 public:
  using Shape = ReduceShape;
  explicit ReduceInPlace(const Shape& shape) : shape_(shape) {}
  [[nodiscard]] int num_threads() const override { return shape_.ranks; }
  void reset() override { shared_.emplace(); }
  void run(int thread) override {
    const auto rank = static_cast<uint32_t>(thread);
    const auto n = static_cast<uint32_t>(shape_.ranks);
    uint32_t phase = 0;
    for (uint32_t call = 0; call < shape_.calls; ++call) {
      auto& data = shared_->data[call % 2];
      for (uint32_t part = 0; part < n; ++part) data[rank][part].write(input(rank, part, call));
      exchange(rank, ++phase);
      uint32_t sum = 0;
      for (uint32_t r = 0; r < n; ++r) sum += data[r][rank].read();
      data[rank][rank].write(sum);
      exchange(rank, ++phase);
      for (uint32_t part = 0; part < n; ++part) {
        uint32_t want = 0;
        for (uint32_t r = 0; r < n; ++r) want += input(r, part, call);
        expect_value(data[part][part].read(), want, "in a reduced part");
      }
    }
    model::Explorer::current().local_state(0);
  }

 private:
  struct Shared {
    std::array<std::array<ModelFlag, 2>, 3> flags;
    std::array<std::array<std::array<Data, 3>, 3>, 2> data;
  };
  static uint32_t input(uint32_t rank, uint32_t part, uint32_t call) {
    return (1U << (8 * rank)) * (1 + part + 10 * call);
  }
  void exchange(uint32_t rank, uint32_t phase) {
    shared_->flags[rank][phase % 2].publish(phase);
    for (uint32_t r = 0; r < static_cast<uint32_t>(shape_.ranks); ++r) {
      if (r != rank) await(shared_->flags[r][phase % 2], phase, shape_.waiting, phase * 10 + r);
    }
  }
  Shape shape_;
  std::optional<Shared> shared_;
};

/// An all-reduce where the gradients lie, as window_all_reduce_shared.cpp: each rank reduces its share of all parts and
/// writes the result into all; the next call's gradients are written into the same memory.
struct SharedShape {
  int ranks = 3;
  uint32_t calls = 2;
  bool skip_last_exchange = false;  ///< a mistake
};
template <typename Data>
class ReduceShared final : public model::Program {
 public:
  explicit ReduceShared(const SharedShape& shape) : shape_(shape) {}
  [[nodiscard]] int num_threads() const override { return shape_.ranks; }
  void reset() override { shared_.emplace(); }
  void run(int thread) override {
    const auto rank = static_cast<uint32_t>(thread);
    const auto n = static_cast<uint32_t>(shape_.ranks);
    uint32_t phase = 0;
    for (uint32_t call = 0; call < shape_.calls; ++call) {
      for (uint32_t share = 0; share < n; ++share) shared_->data[rank][share].write(input(rank, share, call));
      exchange(rank, ++phase);
      uint32_t sum = 0;
      for (uint32_t r = 0; r < n; ++r) sum += shared_->data[r][rank].read();
      for (uint32_t r = 0; r < n; ++r) shared_->data[r][rank].write(sum);
      if (!shape_.skip_last_exchange) exchange(rank, ++phase);
      for (uint32_t share = 0; share < n; ++share) {
        uint32_t want = 0;
        for (uint32_t r = 0; r < n; ++r) want += input(r, share, call);
        expect_value(shared_->data[rank][share].read(), want, "in a reduced gradient");
      }
    }
    model::Explorer::current().local_state(0);
  }

 private:
  struct Shared {
    std::array<std::array<ModelFlag, 2>, 3> flags;
    std::array<std::array<Data, 3>, 3> data;
  };
  static uint32_t input(uint32_t rank, uint32_t share, uint32_t call) {
    return (1U << (8 * rank)) * (1 + share + 10 * call);
  }
  void exchange(uint32_t rank, uint32_t phase) {
    shared_->flags[rank][phase % 2].publish(phase);
    for (uint32_t r = 0; r < static_cast<uint32_t>(shape_.ranks); ++r) {
      if (r != rank) await(shared_->flags[r][phase % 2], phase, Waiting::kSpin, phase * 10 + r);
    }
  }
  SharedShape shape_;
  std::optional<Shared> shared_;
};

/// Two ranks that hand two buffers to and fro, as pair_exchange.h: each drains what its peer has filled and refills that very buffer; the
/// next call begins in the buffer that was drained last, with no phase in between.
struct PairShape {
  uint32_t calls = 2;
  uint32_t chunks = 2;  ///< per call
  Waiting waiting = Waiting::kSpin;
  bool refill_before_drain = false;  ///< a mistake
  bool no_swap = false;              ///< a mistake: what was drained is not what is filled next
  bool fill_before_drain = false;    ///< a mistake: the next chunk goes where the peer still reads
  bool no_wait = false;              ///< a mistake: later chunks are drained without waiting for the peer's phase
};
template <typename Data>
class PairExchangeProgram final : public model::Program {
 public:
  using Shape = PairShape;
  explicit PairExchangeProgram(const Shape& shape) : shape_(shape) {}
  [[nodiscard]] int num_threads() const override { return 2; }
  void reset() override { shared_.emplace(); }
  void run(int thread) override {
    const auto rank = static_cast<uint32_t>(thread);
    uint32_t phase = 0;
    uint32_t swaps = 0;
    for (uint32_t call = 0; call < shape_.calls; ++call) {
      buffer(rank, swaps).write(value(rank, call, 0));
      exchange(rank, ++phase, false);
      for (uint32_t chunk = 0;; ++chunk) {
        const bool more = chunk + 1 < shape_.chunks;
        Data& theirs = buffer(rank + 1, swaps);
        if (more && shape_.fill_before_drain) buffer(rank, swaps).write(value(rank, call, chunk + 1));
        if (more && shape_.refill_before_drain) theirs.write(value(rank, call, chunk + 1));
        expect_value(theirs.read(), value(1 - rank, call, chunk), "in a chunk of the pair");
        if (more && !shape_.refill_before_drain && !shape_.fill_before_drain)
          theirs.write(value(rank, call, chunk + 1));
        if (!shape_.no_swap) swaps ^= 1;
        if (!more) break;
        exchange(rank, ++phase, shape_.no_wait);
      }
    }
    model::Explorer::current().local_state(0);
  }

 private:
  struct Shared {
    std::array<std::array<ModelFlag, 2>, 2> flags;
    std::array<Data, 2> buffers;
  };
  static uint32_t value(uint32_t rank, uint32_t call, uint32_t chunk) {
    return 1000 * (rank + 1) + 100 * (call + 1) + chunk + 1;
  }
  Data& buffer(uint32_t rank, uint32_t swaps) { return shared_->buffers[(rank + swaps) & 1]; }
  void exchange(uint32_t rank, uint32_t phase, bool no_wait) {
    shared_->flags[rank][phase % 2].publish(phase);
    if (!no_wait) await(shared_->flags[1 - rank][phase % 2], phase, shape_.waiting, phase * 10 + rank);
  }
  Shape shape_;
  std::optional<Shared> shared_;
};

/// Send and receive, as window_point_to_point.cpp: two slots, a flag for sent and one for acknowledged pieces.
struct RingShape {
  uint32_t pieces = 4;
  Waiting waiting = Waiting::kEither;
  uint32_t in_flight = 2;          ///< 3 is a mistake: there are two slots
  bool acknowledge_first = false;  ///< a mistake
};
template <typename Data>
class Ring final : public model::Program {
 public:
  using Shape = RingShape;
  explicit Ring(const Shape& shape) : shape_(shape) {}
  [[nodiscard]] int num_threads() const override { return 2; }
  void reset() override { shared_.emplace(); }
  void run(int thread) override {
    for (uint32_t piece = 1; piece <= shape_.pieces; ++piece) {
      Data& slot = shared_->slots[piece % 2];
      if (thread == 0) {
        await(shared_->acknowledged, piece - shape_.in_flight, shape_.waiting, piece);
        slot.write(100 + piece);
        shared_->sent.publish(piece);
      } else {
        await(shared_->sent, piece, shape_.waiting, piece);
        if (shape_.acknowledge_first) shared_->acknowledged.publish(piece);
        expect_value(slot.read(), 100 + piece, "in a received piece");
        if (!shape_.acknowledge_first) shared_->acknowledged.publish(piece);
      }
    }
    model::Explorer::current().local_state(0);
  }

 private:
  struct Shared {
    ModelFlag sent;
    ModelFlag acknowledged;
    std::array<Data, 2> slots;
  };
  Shape shape_;
  std::optional<Shared> shared_;
};

/// Ranks 0 and 1 find an error each, rank 2 looks whether there is one, as Window::poison() and throw_if_broken().
template <typename Data>
class Poison final : public model::Program {
 public:
  explicit Poison(bool publish_first = false) : publish_first_(publish_first) {}
  [[nodiscard]] int num_threads() const override { return 3; }
  void reset() override {
    shared_.emplace();
    winner_ = 0;
  }
  void run(int thread) override {
    model::Explorer& explorer = model::Explorer::current();
    auto& cell = *shared_;
    if (thread < 2 && cell.claim()) {
      if (winner_ != 0) explorer.fail("two ranks may write the record");
      winner_ = static_cast<uint32_t>(thread) + 1;
      if (publish_first_) cell.publish();
      cell.record().kind.write(winner_);
      cell.record().text.write(winner_ * 10);
      if (!publish_first_) cell.publish();
    }
    if (thread == 2) {
      while (!cell.claimed()) explorer.await_newer();
    }
    const auto* record = cell.read();
    while (record == nullptr) {
      explorer.await_newer();
      record = cell.read();
    }
    expect_value(record->kind.read(), winner_, "as the kind of the error");
    expect_value(record->text.read(), winner_ * 10, "as its text");
  }

 private:
  struct Record {
    Data kind;
    Data text;
  };
  bool publish_first_;
  uint32_t winner_ = 0;
  std::optional<PoisonCell<model::ModelAtomics, Record, ModelOrders>> shared_;
};

}  // namespace trireme::comm
