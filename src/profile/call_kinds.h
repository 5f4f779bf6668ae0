// What a call of communication is, in numbers and in words: the numbers stand in the collective trace (docs/formats.md) and travel between
// ranks, so they never change their meaning.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme::profile {

enum class DType : uint8_t { kF16, kBF16, kF32, kF64, kI32, kI64, kU8, kBool };
enum class ReduceKind : uint8_t { kSum, kAvg, kMin, kMax };
enum class OpKind : uint8_t {
  kBarrier,
  kAllReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSend,
  kRecv,
};

[[nodiscard]] std::string_view to_string(DType dtype) noexcept;  ///< "f32"
/// "Float", as c10::toString has it; "Undefined" for a damaged code.
[[nodiscard]] std::string_view torch_name(DType dtype) noexcept;
[[nodiscard]] std::string_view to_string(ReduceKind kind) noexcept;  ///< "sum"
[[nodiscard]] std::string_view to_string(OpKind op) noexcept;        ///< "all_reduce"

/// What people want to read of a call.
struct CallWords {
  OpKind op = OpKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceKind reduce = ReduceKind::kSum;
  int num_dims = 0;                  ///< of the tensor
  std::span<const int64_t> dims;     ///< those that were kept, the first ones
  int root = -1;                     ///< root or peer, as group rank
  std::span<const int> group_ranks;  ///< global ranks of the members, for the root; empty: 0, 1, ...
  std::string_view label;
};

/// "all_reduce sum f32[2, 3] (bucket 2)" or "broadcast f32[10] from 2".
[[nodiscard]] std::string describe(const CallWords& call);

}  // namespace trireme::profile
