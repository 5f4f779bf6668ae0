// Where in the program something was allocated: a stack, and the frame in it that belongs to the user.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::memory {

struct Frame {
  std::string function;  ///< demangled; empty: not known
  std::string module;    ///< path of the program or library
  uint64_t offset = 0;   ///< in the module, as addr2line takes it

  /// "train_step(Net&) (prog+0x1f3a)"
  [[nodiscard]] std::string text() const;
};

/// Return addresses, innermost first.
using Stack = std::vector<void*>;
struct HashStack {
  size_t operator()(const Stack& stack) const noexcept;
};
/// So many different ones are kept; a program that makes its code as it runs could go on for ever.
inline constexpr size_t kMostStacks = 200'000;

/// Return addresses of the calling thread, innermost first, from the caller's own on. Returns how many were written.
/// Cost: about a microsecond a frame.
[[nodiscard]] size_t capture_stack(std::span<void*> out) noexcept;

/// Not from a signal handler: reads the symbol table of the program at its first use.
[[nodiscard]] Frame describe_frame(const void* return_address);

/// Whether the frame is of LibTorch, of the C and C++ libraries or of Trireme, and so tells nobody which line of the program to look at.
[[nodiscard]] bool is_of_libraries(const Frame& frame);

/// Index of the innermost frame that is the user's; 0 when there is none.
[[nodiscard]] size_t user_frame(std::span<void* const> stack);

}  // namespace trireme::memory
