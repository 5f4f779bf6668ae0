// FLOPs of operators from the shapes that a profiler recorded: model FLOPs, dense, a multiply and an add are two.
#pragma once

#include <optional>
#include <string_view>

#include "trace/chrome_event.h"

namespace trireme::trace {

/// Whether flops_of() may know this operator; cheap, so that other operators' arguments are not parsed.
[[nodiscard]] bool counts_flops(std::string_view name);

/// mm, addmm, bmm, baddbmm, mv, dot; convolution (1 to 3 dims, groups, transposed) and its backward; scaled dot-product attention (flash, efficient,
/// cuDNN and CPU forms) and its backward, full attention whether causal or not, without the recomputation in the backward. Operators that call
/// one of these (linear, matmul, conv2d, einsum) are not counted themselves. Nothing when the shapes are not there or do not fit together.
[[nodiscard]] std::optional<double> flops_of(std::string_view name, const OperatorArgs& args);

}  // namespace trireme::trace
