// The out-of-memory messages of PyTorch's device allocators (1.4 to 2.13; CUDA, HIP, XPU, MPS), and what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::diagnose {

/// Bytes; nullopt: not told by that version.
struct OomMessage {
  std::optional<int64_t> ask{};
  std::optional<int64_t> capacity{};
  std::optional<int64_t> free{};
  std::optional<int64_t> allocated{};        ///< by tensors
  std::optional<int64_t> reserved{};         ///< by PyTorch's cache, tensors included
  std::optional<int64_t> process{};          ///< in use by this process, PyTorch or not
  std::optional<int64_t> other_processes{};  ///< that the message lists
  std::optional<int64_t> allowed{};          ///< set_per_process_memory_fraction
  std::optional<int> device{};

  /// reserved - allocated: cached and in no tensor.
  [[nodiscard]] std::optional<int64_t> unallocated() const;
  /// What neither is free nor reserved by PyTorch: other processes, contexts, libraries. nullopt where reserved exceeds the card.
  [[nodiscard]] std::optional<int64_t> outside() const;
};

/// nullopt: no such message, or one without any number.
[[nodiscard]] std::optional<OomMessage> parse_oom_message(std::string_view line);

struct OomVerdict {
  std::string code;  ///< memory.full, .fragmented, .other_process, .big_ask, .absurd_ask, .oversubscribed, .limit
  std::string cause;
  std::string advice;
  double confidence = 0.9;
};

/// In this order: an ask that no card could meet; more reserved than there is; a limit; the cache fragmented (as much in it as was asked for);
/// the card held by something else; one big ask; truly full.
[[nodiscard]] OomVerdict explain(const OomMessage& message);

/// "1.96 GiB", "246.3 MiB", "512 bytes".
[[nodiscard]] std::string bytes_text(int64_t bytes);

}  // namespace trireme::diagnose
