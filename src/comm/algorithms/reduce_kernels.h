// Elementwise reduction of several inputs in rank order: ((x0 + x1) + x2) + ... for every element.
//
// Two implementations, bitwise equal: portable C++, which states the semantics, and AVX2. Rules (docs/numerics.md):
//   f16, bf16   widened to f32, combined there, rounded once (to nearest even) at the end
//   NaN         a sum keeps the payload of the first NaN in rank order, made quiet; MIN and MAX return the first NaN, unchanged but
//               that one of f16 and bf16 that signals is made quiet when it is widened
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

/// One pass over a buffer that two ranks hand to and fro: out[i] = in[0][i] op in[1][i], and slot[i] = next[i] in its place.
/// `slot` is one of the inputs; `next` overlaps neither `out` nor `slot`, or it is `out`: then both get the result. Bitwise equal to the ReduceFunction with two inputs.
///
/// Doing both in one loop lets the processor overlap the slow read of the other core's cache line with the read of `next`, and leaves
/// the line where it will be wanted: each line crosses between the cores once per chunk instead of twice.
using RefillFunction = void (*)(void* out, const void* const* in, size_t count, void* slot, const void* next);

/// Null where reduce_function() is.
[[nodiscard]] RefillFunction reduce_refill_function(DType dtype, ReduceKind kind);
[[nodiscard]] RefillFunction reduce_refill_function_avx2(DType dtype, ReduceKind kind);

/// out = slot, slot = next, in one pass as above.
void copy_and_refill(void* out, void* slot, const void* next, size_t bytes);

}  // namespace trireme::comm
