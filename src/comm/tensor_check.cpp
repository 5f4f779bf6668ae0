#include "comm/tensor_check.h"

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::comm {

std::optional<DType> to_dtype(at::ScalarType type) noexcept {
  switch (type) {
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kFloat:
      return DType::kF32;
    case at::kDouble:
      return DType::kF64;
    case at::kInt:
      return DType::kI32;
    case at::kLong:
      return DType::kI64;
    case at::kByte:
      return DType::kU8;
    case at::kBool:
      return DType::kBool;
    default:
      return std::nullopt;
  }
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined tensor";
  const std::optional<DType> dtype = to_dtype(tensor.scalar_type());
  return trireme::str(dtype ? std::string(to_string(*dtype)) : std::string(c10::toString(tensor.scalar_type())),
                      tensor.sizes());
}

std::string CallSite::prefix() const {
  const std::string who = global_rank == rank ? trireme::str(rank, "/", size)
                                              : trireme::str(global_rank, " (", rank, "/", size, " in its group)");
  return trireme::str("[comm.", operation, "] rank ", who, ": group '", group, "': ");
}

DType check_tensor(const CallSite& site, const at::Tensor& tensor) {
  const auto fail = [&site](const auto&... parts) {
    throw Error(ErrorKind::kInvalidArgument, trireme::str(site.prefix(), parts...));
  };
  if (!tensor.defined()) fail("an undefined tensor was passed; every tensor must be defined.");
  if (!tensor.is_cpu()) {
    fail("the tensor is on ", tensor.device(), "; the 'host' backend moves CPU tensors. Call .cpu() first.");
  }
  if (tensor.layout() != at::kStrided)
    fail("the tensor is sparse; only dense tensors are moved. Call .to_dense() first.");
  if (!tensor.is_contiguous()) {
    fail("the tensor ", describe(tensor), " is not contiguous (strides ", tensor.strides(),
         "); collectives need contiguous tensors. Call .contiguous() first, and copy a result back.");
  }
  if (const std::optional<DType> dtype = to_dtype(tensor.scalar_type())) return *dtype;
  throw Error(ErrorKind::kInvalidArgument,
              trireme::str(site.prefix(), "dtype ", c10::toString(tensor.scalar_type()),
                           " is not moved; the dtypes are f16 bf16 f32 f64 i32 i64 u8 bool."));
}

ReduceKind check_reduction(const CallSite& site, const c10d::ReduceOp& op, DType dtype) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return ReduceKind::kSum;
    case c10d::ReduceOp::MIN:
      return ReduceKind::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceKind::kMax;
    case c10d::ReduceOp::AVG:
      if (dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64) {
        return ReduceKind::kAvg;
      }
      throw Error(ErrorKind::kInvalidArgument,
                  trireme::str(site.prefix(), "an average of ", to_string(dtype),
                               " would round; AVG is for floating-point tensors. Use SUM and divide."));
    default:
      break;
  }
  static constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  const auto index = static_cast<size_t>(static_cast<c10d::ReduceOp::RedOpType>(op));
  throw Error(ErrorKind::kUnsupported, trireme::str(site.prefix(), "the 'host' backend has no reduction ",
                                                    index < std::size(kNames) ? kNames[index] : "of that kind",
                                                    "; it has SUM, AVG, MIN and MAX."));
}

std::vector<MemoryRange> ranges_of(at::ArrayRef<at::Tensor> tensors) {
  std::vector<MemoryRange> ranges;
  for (const at::Tensor& tensor : tensors) {
    ranges.push_back({static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  }
  return ranges;
}

std::vector<MemoryRange> equal_parts(const at::Tensor& tensor, int num_ranks) {
  const size_t bytes = tensor.nbytes() / static_cast<size_t>(num_ranks);
  std::vector<MemoryRange> ranges;
  for (int r = 0; r < num_ranks; ++r) {
    ranges.push_back({static_cast<const std::byte*>(tensor.data_ptr()) + static_cast<size_t>(r) * bytes, bytes});
  }
  return ranges;
}

std::vector<MemoryRange> only_own(const at::Tensor& tensor, int rank, int num_ranks) {
  std::vector<MemoryRange> ranges(static_cast<size_t>(num_ranks));
  ranges[static_cast<size_t>(rank)] = {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
  return ranges;
}

void check_apart(const CallSite& site, const std::vector<MemoryRange>& written, const std::vector<MemoryRange>& read,
                 int rank) {
  const auto meet = [](const MemoryRange& a, const MemoryRange& b) {
    return a.bytes > 0 && b.bytes > 0 && a.data < b.data + b.bytes && b.data < a.data + a.bytes;
  };
  for (size_t w = 0; w < written.size(); ++w) {
    for (size_t r = 0; r < read.size(); ++r) {
      if (!meet(written[w], read[r])) continue;
      const bool own = static_cast<int>(w) == rank && static_cast<int>(r) == rank;
      if (own && written[w].data == read[r].data && written[w].bytes == read[r].bytes) continue;
      throw Error(
          ErrorKind::kInvalidArgument,
          trireme::str(site.prefix(), "the output for rank ", w, " (", written[w].bytes,
                       " bytes) shares memory with the input for rank ", r, " (", read[r].bytes,
                       " bytes), which peers read while it is written; only this rank's own part may be in place. "
                       "Give the output memory of its own, or clone() the input."));
    }
  }
}

void check_same_dtype(const CallSite& site, const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() == b.scalar_type()) return;
  throw Error(ErrorKind::kInvalidArgument,
              trireme::str(site.prefix(), "tensors of one call must have one dtype, but there are ", describe(a),
                           " and ", describe(b), "."));
}

}  // namespace trireme::comm
