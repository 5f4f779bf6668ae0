#include "comm/transport/call_info.h"

#include <algorithm>
#include <cstring>

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
  return profile::describe({.op = info.op,
                            .dtype = info.dtype,
                            .reduce = info.reduce,
                            .num_dims = info.num_dims,
                            .dims = info.dims,
                            .root = info.root,
                            .group_ranks = global_ranks,
                            .label = info.label_view()});
}

bool same_call(const CallInfo& a, const CallInfo& b) noexcept {
  if (a.call != b.call || a.op != b.op || a.dtype != b.dtype || a.reduce != b.reduce || a.root != b.root) return false;
  if (a.label != b.label) return false;
  if (a.op == OpKind::kAllToAll) return true;
  return a.count == b.count && a.num_dims == b.num_dims && a.dims == b.dims && a.more_dims == b.more_dims;
}

}  // namespace trireme::comm
