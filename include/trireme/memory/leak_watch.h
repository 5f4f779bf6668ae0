// Names the line of a training program whose tensors stay, step after step: a loss that is added up with its graph, outputs kept in a list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::memory {

struct LeakWatchOptions {
  double mean_sample_bytes = 512 << 10;  ///< one sample in so many bytes, on average; 1 or less: every allocation
  uint64_t seed = 1;                     ///< of the sampling
};

/// What one line of the program keeps.
struct Growth {
  std::string where;    ///< "train_step(Net&) (prog+0x1f3a)"
  std::string resolve;  ///< a command that gives file and line: "addr2line -Cfie /path/prog 0x1f3a"
  std::string through;  ///< the library function it called: "at::_ops::linear::call(...)"; empty: it allocates itself
  double bytes_per_step = 0;  ///< estimated
  double bytes = 0;           ///< estimated, since `since_step`
  int64_t since_step = 0;
  int64_t step = 0;         ///< at which it was told
  bool with_graph = false;  ///< most of it was allocated while autograd recorded

  /// One line: how much, since when, where, and what is probably kept.
  [[nodiscard]] std::string text() const;
};

/// Watches the CPU tensors that are allocated from now on, until the process ends. Allocations are sampled, so small ones cost nanoseconds.
/// DistributedDataParallel does this where TRIREME_LEAK_WATCH is set to 1; a second call changes nothing.
///
/// Threads  any. Blocks of the gradient arena are not watched: their number is fixed.
void start_leak_watch(const LeakWatchOptions& options = {});

[[nodiscard]] bool leak_watch_is_on() noexcept;

/// Ends an optimizer step: what grows in a regular way is logged as a warning and returned, each line again when it has doubled.
/// DistributedDataParallel calls it in forward(); a program without it calls it once a step. Nothing happens while the watch is off.
///
/// Threads  one at a time.
std::vector<Growth> end_leak_watch_step();

}  // namespace trireme::memory
