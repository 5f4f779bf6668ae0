// Tensors as the byte level sees them: checks, dtype codes, and what ranks compare.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/call_info.h"

namespace trireme::comm {

/// The code of a dtype that we move, or none.
[[nodiscard]] std::optional<DType> to_dtype(at::ScalarType type) noexcept;

/// "f32[2, 3]"
[[nodiscard]] std::string describe(const at::Tensor& tensor);

/// Where a check happens, for messages: "[comm.all_reduce] rank 1/4: group 'world': ", and in a group whose ranks are others in the world
/// "[comm.all_reduce] rank 5 (1/2 in its group): group 'dp': ".
struct CallSite {
  std::string_view operation;
  int rank;
  int size;
  const std::string& group;
  int global_rank;
  [[nodiscard]] std::string prefix() const;
};

/// Throws kInvalidArgument unless the tensor is a dense contiguous CPU tensor of a dtype that we move; returns its
/// code.
DType check_tensor(const CallSite& site, const at::Tensor& tensor);

/// SUM AVG MIN MAX; others, and an average of integers, are refused by name.
ReduceKind check_reduction(const CallSite& site, const c10d::ReduceOp& op, DType dtype);

/// Bytes of this process.
struct MemoryRange {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

/// One range for each rank: the tensors of a list; `num_ranks` equal parts of one tensor; a tensor that stands for one rank alone.
[[nodiscard]] std::vector<MemoryRange> ranges_of(at::ArrayRef<at::Tensor> tensors);
[[nodiscard]] std::vector<MemoryRange> equal_parts(const at::Tensor& tensor, int num_ranks);
[[nodiscard]] std::vector<MemoryRange> only_own(const at::Tensor& tensor, int rank, int num_ranks);

/// Throws kInvalidArgument when a call would write what it reads: peers may read an input while the output is written. A rank's own part may
/// be in place, where both are the same bytes.
void check_apart(const CallSite& site, const std::vector<MemoryRange>& written, const std::vector<MemoryRange>& read,
                 int rank);

void check_same_dtype(const CallSite& site, const at::Tensor& a, const at::Tensor& b);

}  // namespace trireme::comm
