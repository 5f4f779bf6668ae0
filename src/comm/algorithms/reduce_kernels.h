// Elementwise reduction of several inputs in rank order: ((x0 + x1) + x2) + ... for every element.
//
// Two implementations, bitwise equal: portable C++, which states the semantics, and AVX2. Rules (docs/numerics.md):
//   f16, bf16   widened to f32, combined there, rounded once (to nearest even) at the end
//   NaN         a sum keeps the payload of the first NaN in rank order, made quiet; MIN and MAX return the first NaN unchanged
//   MIN, MAX    of equal values (+0 and -0 too) return the first in rank order
//   AVG         divides once, after the sum; integers truncate towards zero
//   bool        SUM and MAX are "or", MIN is "and"; AVG has no meaning and is refused
#pragma once

#include <cstddef>

#include "comm/transport/call_info.h"

namespace trireme::comm {

/// out[i] = reduction of in[0][i] ... in[num_inputs - 1][i]. `out` may be any of the inputs, exactly; otherwise no overlap. num_inputs >= 1.
using ReduceFunction = void (*)(void* out, const void* const* in, int num_inputs, size_t count);

/// The fastest for this CPU; null where the pair has no meaning (AVG of bool).
[[nodiscard]] ReduceFunction reduce_function(DType dtype, ReduceKind kind);

[[nodiscard]] ReduceFunction reduce_function_portable(DType dtype, ReduceKind kind);

/// Null for pairs that AVX2 does not speed up, and on other processors.
[[nodiscard]] ReduceFunction reduce_function_avx2(DType dtype, ReduceKind kind);

}  // namespace trireme::comm
