// Names the line whose allocations stay, step after step.
//
// Allocations are sampled by their bytes (mean one per 512 KiB), so the cost of the rest is a subtraction. A sample remembers its site and the
// step it was born in. Memory that leaks shows as samples of one site that were born in step after step and are all still there; what is kept on
// purpose (parameters, optimizer state, caches that are full) is born once, or dies as fast as it is born.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/track/call_site.h"
#include "trireme/memory/leak_watch.h"

namespace trireme::memory {

/// Purpose        Estimates what each line keeps, and tells of growth once it is regular, and again each time it has doubled.
/// Thread safety  allocated() and freed() from any thread; end_step() and growths() from one at a time.
/// Cost           allocated(): some ns, unless sampled (then a stack, tens of us). freed(): one load, unless the address may be a sample's.
class LeakWatch {
 public:
  explicit LeakWatch(const LeakWatchOptions& options = {});

  /// `in_graph`: autograd records on this thread.
  void allocated(const void* block, size_t bytes, bool in_graph) noexcept;
  void freed(const void* block) noexcept;

  /// Ends a step and returns what has begun to grow, largest first.
  [[nodiscard]] std::vector<Growth> end_step();

  [[nodiscard]] int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kMostDepth = 40;
  static constexpr size_t kFilterSlots = 1 << 14;

  struct Sample {
    double bytes;  // it stands for
    uint32_t line;
    int64_t born;
    bool in_graph;
  };
  /// One line of the user's program, through whatever library functions it allocates.
  struct Line {
    const void* address = nullptr;  // of the user's frame
    const void* through = nullptr;  // of the library frame it called
    struct Born {
      int64_t step;
      int32_t alive = 0;
      int32_t in_graph = 0;
      double bytes = 0;
    };
    std::deque<Born> births;          // steps with living samples, oldest first
    std::deque<int64_t> late_deaths;  // the last steps in which a sample died that had outlived a step
    double told_bytes = 0;
  };
  void add_sample(const void* block, double bytes, bool in_graph);
  uint32_t line_of(const Stack& stack);
  [[nodiscard]] bool grows(const Line& line, Growth& growth) const;
  static size_t slot_of(const void* block) noexcept;

  const double mean_bytes_;
  const uint64_t seed_;
  std::atomic<int64_t> step_{0};
  std::atomic<uint64_t> num_threads_{0};
  std::array<std::atomic<uint32_t>, kFilterSlots> filter_{};  // samples alive whose address falls there
  std::mutex mutex_;
  std::unordered_map<const void*, Sample> samples_;
  std::unordered_map<Stack, uint32_t, HashStack> stacks_;
  std::unordered_map<const void*, uint32_t> line_index_;
  std::vector<Line> lines_;
};

}  // namespace trireme::memory
