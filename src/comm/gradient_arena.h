// Gradients born in memory that every rank has mapped, so that they are reduced where they lie.
//
// A CPU allocator of ours stands in front of LibTorch's. While a backward of a DDP module runs on a thread, a request
// for exactly the bytes of one of its parameters is served from the rank's part of the shared memory; AccumulateGrad
// then keeps that tensor as .grad without a copy. Everything else goes to the allocator that was there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/transport/shared_parts.h"

namespace trireme::comm {

/// Purpose       Blocks of a few exact sizes in this rank's part of the shared memory.
/// Invariants    Free lists are last in, first out, so that addresses repeat from step to step. A size that has run out
///               is served by the ordinary allocator; such a gradient is staged.
/// Thread safety All members.
/// Lifetime      Blocks may outlive the DDP module (somebody kept a .grad): the memory goes with the last block.
class GradientArena {
 public:
  /// Bytes of one rank's part for gradients of these sizes.
  [[nodiscard]] static size_t part_bytes(std::span<const size_t> gradient_bytes);

  /// Installs the allocator on first use, for the whole process and for good.
  [[nodiscard]] static std::shared_ptr<GradientArena> make(SharedParts shared, int rank,
                                                           std::span<const size_t> gradient_bytes);
  ~GradientArena();
  GradientArena(const GradientArena&) = delete;
  GradientArena& operator=(const GradientArena&) = delete;

  [[nodiscard]] const SharedParts& shared() const noexcept { return shared_; }

  /// Serves this thread's requests while the given graph task runs on it; off by itself as soon as that has ended,
  /// with or without an exception.
  void raise(int graph_task) noexcept;
  static void lower() noexcept;

  /// Null when the size is none of ours, or no block is free.
  [[nodiscard]] void* take(size_t bytes) noexcept;
  size_t give_back(void* block) noexcept;  ///< its bytes
  [[nodiscard]] bool contains(const void* block) const noexcept;

 private:
  struct Class {
    size_t bytes = 0;   // as asked for
    size_t stride = 0;  // between blocks
    std::byte* begin = nullptr;
    size_t num_blocks = 0;
    std::vector<void*> free;
  };
  static std::vector<Class> classes_of(std::span<const size_t> gradient_bytes);
  GradientArena(SharedParts shared, int rank, std::span<const size_t> gradient_bytes);

  SharedParts shared_;
  std::byte* begin_;
  std::byte* end_;
  std::mutex mutex_;
  std::vector<Class> classes_;  // by bytes, and so by address
  size_t num_taken_ = 0;
  std::shared_ptr<GradientArena> self_;  // while blocks are out
  std::weak_ptr<GradientArena> weak_;
};

}  // namespace trireme::comm
