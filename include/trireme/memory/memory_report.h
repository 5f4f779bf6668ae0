// Who holds the memory: bytes by what they are for, now and at their highest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::memory {

/// What a block is for. How it is found out: trireme/memory/tracker.h.
enum class Category : uint8_t {
  kParameters,      ///< of modules, and their buffers
  kGradients,       ///< .grad of those parameters
  kOptimizerState,  ///< what the optimizers keep from step to step
  kActivations,     ///< made in forward, workspaces of its operators included
  kCommunication,   ///< registered buffers
  kOther,           ///< inputs, temporaries of backward and of the update, all that was there before and is unknown
};
inline constexpr size_t kNumCategories = 6;

/// "parameters", "optimizer state" and so on.
[[nodiscard]] std::string_view to_string(Category category) noexcept;

/// Bytes of each category.
struct MemoryUse {
  std::array<int64_t, kNumCategories> bytes = {};

  [[nodiscard]] int64_t operator[](Category category) const { return bytes[static_cast<size_t>(category)]; }
  [[nodiscard]] int64_t total() const noexcept;
};

struct ModuleUse {
  std::string name;  ///< "layers.0": what stands before the last dot of its parameters' names; "": the model itself
  MemoryUse current;
  int64_t peak_activations = 0;
};

/// A device's allocator, by its own count; nothing is known of who asked.
struct DeviceUse {
  std::string device;  ///< "cuda:0"
  MemoryUse known;     ///< parameters, gradients and optimizer state that lie there
  int64_t allocated = 0, peak_allocated = 0;
  int64_t reserved = 0;        ///< taken from the driver
  int64_t inactive_split = 0;  ///< reserved, free, and not to be given back: fragmentation
};

struct MemoryReport {
  MemoryUse current;
  MemoryUse peak;                                   ///< each category's own highest; they were not reached at one time
  MemoryUse at_peak;                                ///< at the moment of the highest total
  std::array<int64_t, kNumCategories> blocks = {};  ///< now
  int64_t allocations = 0;                          ///< seen, since the tracker began
  int64_t frees = 0;
  int64_t resident = 0;            ///< of the process (VmRSS), whatever it is for
  int64_t steps = 0;               ///< ended
  std::vector<ModuleUse> modules;  ///< by name
  std::vector<DeviceUse> devices;  ///< empty without a GPU

  /// A table in the manner of torch.cuda.memory_summary.
  [[nodiscard]] std::string text() const;
  /// One line a module, largest first.
  [[nodiscard]] std::string modules_text() const;
};

/// One tensor that the model, its gradients or an optimizer holds.
struct TensorRow {
  std::string name;  ///< "0.weight", "0.weight.grad", "0.weight.exp_avg"
  Category category = Category::kOther;
  std::vector<int64_t> shape;
  std::string dtype;        ///< "float32"
  std::string device;       ///< "cpu"
  int64_t bytes = 0;        ///< of its storage; 0 where `shared_with` has been counted
  std::string shared_with;  ///< a row above with the same storage; empty: none
};

/// A table in the manner of pytorch_memlab's MemReporter: a storage is counted once, and marked where it appears again.
[[nodiscard]] std::string tensor_table(const std::vector<TensorRow>& rows);

}  // namespace trireme::memory
