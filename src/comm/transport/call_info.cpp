#include "comm/transport/call_info.h"

#include <algorithm>
#include <cstring>

#include "base/str.h"

namespace trireme::comm {

size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

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

void CallInfo::set_label(std::string_view text) noexcept {
  label.fill('\0');
  std::copy_n(text.data(), std::min(text.size(), label.size()), label.data());
}

std::string_view CallInfo::label_view() const noexcept { return {label.data(), strnlen(label.data(), label.size())}; }

void CallInfo::set_dims(std::span<const int64_t> all) noexcept {
  num_dims = static_cast<uint8_t>(std::min<size_t>(all.size(), UINT8_MAX));
  const size_t num_kept = std::min(all.size(), dims.size());
  std::copy_n(all.begin(), num_kept, dims.begin());
  if (num_kept == all.size()) return;
  more_dims = 0xcbf29ce484222325;  // FNV-1a, a dim at a time
  for (const int64_t dim : all.subspan(num_kept)) more_dims = (more_dims ^ static_cast<uint64_t>(dim)) * 0x100000001b3;
}

std::string describe(const CallInfo& info, std::span<const int> global_ranks) {
  std::string text(to_string(info.op));
  if (info.op == OpKind::kBarrier) return text;
  const bool reduces = info.op == OpKind::kAllReduce || info.op == OpKind::kReduceScatter;
  if (reduces) text += str(" ", to_string(info.reduce));
  text += str(" ", to_string(info.dtype), "[");
  const int num_kept = std::min<int>(info.num_dims, kMaxHeaderDims);
  for (int i = 0; i < num_kept; ++i) text += str(i == 0 ? "" : ", ", info.dims[i]);
  if (info.num_dims > kMaxHeaderDims) text += str(", ... (", static_cast<int>(info.num_dims), " dims)");
  text += "]";
  if (info.root >= 0) {
    const char* word = info.op == OpKind::kSend                                    ? " to "
                       : info.op == OpKind::kRecv || info.op == OpKind::kBroadcast ? " from "
                                                                                   : " root ";
    const auto root = static_cast<size_t>(info.root);
    text += str(word, root < global_ranks.size() ? global_ranks[root] : info.root);
  }
  if (!info.label_view().empty()) text += str(" (", info.label_view(), ")");
  return text;
}

bool same_call(const CallInfo& a, const CallInfo& b) noexcept {
  if (a.call != b.call || a.op != b.op || a.dtype != b.dtype || a.reduce != b.reduce || a.root != b.root) return false;
  if (a.label != b.label) return false;
  if (a.op == OpKind::kAllToAll) return true;
  return a.count == b.count && a.num_dims == b.num_dims && a.dims == b.dims && a.more_dims == b.more_dims;
}

}  // namespace trireme::comm
