// Records some steps of a training loop with LibTorch's own profiler, one Chrome trace for each rank and cycle.
//
//   trireme::profile::Profiler profiler({.schedule = {.wait = 1, .warmup = 1, .active = 3, .repeat = 2}, .folder = "traces"});
//   for (...) {
//     train_step();
//     profiler.step();
//   }
//
// `trireme trace report traces` then tells where the time goes; TensorBoard and Perfetto open the files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::profile {

/// Skip, then cycles of wait, warm-up and active steps; of those the active ones are recorded. As torch.profiler.schedule has it.
struct ProfileSchedule {
  int64_t skip_first = 0;
  int64_t wait = 1;
  int64_t warmup = 1;  ///< traced and thrown away, since the first traced step is slow
  int64_t active = 3;
  int64_t repeat = 1;  ///< cycles; 0: until the end
};

struct ProfilerOptions {
  ProfileSchedule schedule = {};
  std::string folder = "traces";  ///< made where it is not there; files are rankR.cycleN.pt.trace.json
  bool record_shapes = true;      ///< of operators' inputs; `trireme trace report` counts FLOPs by them
  bool record_memory = false;     ///< each allocation and free
  int rank = -1;                  ///< -1: RANK, or 0
  int world_size = -1;            ///< -1: WORLD_SIZE, or 1
};

/// Purpose        The steps between construction and the first step() are step 0, and so on; each recorded one is marked ProfilerStep#N.
/// Errors         kInvalidArgument  a schedule that is none.   kUnavailable  another profiler is on.   kIo  the trace cannot be written.
/// Thread safety  the thread that made it; what it records are the operators of this thread and of autograd's.
/// Lifetime       the destructor ends as finish() does, and reports instead of throwing.
/// Cost           nothing in steps that are not traced; in traced ones some microseconds an operator.
class Profiler {
 public:
  explicit Profiler(ProfilerOptions options = {});
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Ends a step.
  void step();
  /// Ends the recording. A cycle that has recorded some of its steps is written, and its trace says that it is partial.
  void finish();
  /// Written so far.
  [[nodiscard]] const std::vector<std::string>& files() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::profile
