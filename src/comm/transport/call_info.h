// What a call is, in plain data: the part of a collective that ranks compare before any byte moves, and that the
// collective trace keeps.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "profile/call_kinds.h"

namespace trireme::comm {

using profile::DType;
using profile::OpKind;
using profile::ReduceKind;
using profile::to_string;

[[nodiscard]] size_t size_of(DType dtype) noexcept;  ///< bytes of one element
/// "Float", as c10::toString has it; "Undefined" for a damaged code

inline constexpr int kMaxHeaderDims = 5;

/// One call as one rank sees it. Plain data of fixed size: it travels through shared memory.
struct CallInfo {
  uint64_t call = 0;  ///< number within the group, from 1; given by CallQueue::issue
  OpKind op = OpKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceKind reduce = ReduceKind::kSum;
  uint8_t num_dims = 0;  ///< of the tensor passed in; dims keeps the first kMaxHeaderDims
  int32_t root = -1;     ///< root or peer, as group rank; -1: none
  uint64_t count = 0;    ///< elements this rank passes in
  std::array<int64_t, kMaxHeaderDims> dims = {};
  uint32_t step = 0;  ///< optimizer step, for messages and the trace; not compared
  /// "bucket 2", for messages and the trace, and compared: what this library labels, it labels alike on all ranks, and buckets of one size
  /// are told apart by nothing else.
  std::array<char, 20> label = {};
  uint64_t more_dims = 0;  ///< a hash of the dims that are not kept

  void set_dims(std::span<const int64_t> all) noexcept;
  void set_label(std::string_view text) noexcept;
  [[nodiscard]] std::string_view label_view() const noexcept;
};

/// "all_reduce sum f32[2, 3]" or "broadcast f32[10] from 2". `global_ranks` are those of the group's members, for the root; empty: 0, 1, ...
[[nodiscard]] std::string describe(const CallInfo& info, std::span<const int> global_ranks = {});

/// Whether two ranks' calls may run together: same call number, operation, dtype, reduction, root, shape and label.
/// all_to_all compares no shape, since its parts may be uneven: the parts themselves are compared pair by pair.
[[nodiscard]] bool same_call(const CallInfo& a, const CallInfo& b) noexcept;

}  // namespace trireme::comm
