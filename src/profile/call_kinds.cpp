#include "profile/call_kinds.h"

#include <algorithm>

#include "base/str.h"

namespace trireme::profile {

std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
    case DType::kBool:
      return "bool";
  }
  return "unknown dtype";
}

std::string_view torch_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF16:
      return "Half";
    case DType::kBF16:
      return "BFloat16";
    case DType::kF32:
      return "Float";
    case DType::kF64:
      return "Double";
    case DType::kI32:
      return "Int";
    case DType::kI64:
      return "Long";
    case DType::kU8:
      return "Byte";
    case DType::kBool:
      return "Bool";
  }
  return "Undefined";
}

std::string_view to_string(ReduceKind kind) noexcept {
  switch (kind) {
    case ReduceKind::kSum:
      return "sum";
    case ReduceKind::kAvg:
      return "avg";
    case ReduceKind::kMin:
      return "min";
    case ReduceKind::kMax:
      return "max";
  }
  return "unknown reduction";
}

std::string_view to_string(OpKind op) noexcept {
  switch (op) {
    case OpKind::kBarrier:
      return "barrier";
    case OpKind::kAllReduce:
      return "all_reduce";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kAllGather:
      return "all_gather";
    case OpKind::kReduceScatter:
      return "reduce_scatter";
    case OpKind::kAllToAll:
      return "all_to_all";
    case OpKind::kSend:
      return "send";
    case OpKind::kRecv:
      return "recv";
  }
  return "unknown operation";
}

std::string describe(const CallWords& call) {
  std::string text(to_string(call.op));
  if (call.op == OpKind::kBarrier) return call.label.empty() ? text : str(text, " (", call.label, ")");
  const bool reduces = call.op == OpKind::kAllReduce || call.op == OpKind::kReduceScatter;
  if (reduces) text += str(" ", to_string(call.reduce));
  text += str(" ", to_string(call.dtype), "[");
  const size_t num_kept = std::min(call.dims.size(), static_cast<size_t>(std::max(call.num_dims, 0)));
  for (size_t i = 0; i < num_kept; ++i) text += str(i == 0 ? "" : ", ", call.dims[i]);
  if (static_cast<size_t>(call.num_dims) > call.dims.size()) text += str(", ... (", call.num_dims, " dims)");
  text += ']';
  if (call.root >= 0) {
    const char* word = call.op == OpKind::kSend                                    ? " to "
                       : call.op == OpKind::kRecv || call.op == OpKind::kBroadcast ? " from "
                                                                                   : " root ";
    const auto root = static_cast<size_t>(call.root);
    text += str(word, root < call.group_ranks.size() ? call.group_ranks[root] : call.root);
  }
  if (!call.label.empty()) text += str(" (", call.label, ")");
  return text;
}

}  // namespace trireme::profile
