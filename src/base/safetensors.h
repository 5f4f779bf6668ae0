// The safetensors file format, as bytes: an 8-byte little-endian header length, a JSON header, raw tensor data.
//
// Example of a header (the file is 8 + 120 + 24 bytes long):
//   {"__metadata__":{"format":"pt"},"weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},
//    "step":{"dtype":"I64","shape":[],"data_offsets":[16,24]}}
// Readable by the Python package `safetensors`. Data starts at a multiple of 8 bytes, each tensor where the last ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::safetensors {

enum class Dtype { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBf16, kF32, kF64 };

[[nodiscard]] size_t size_of(Dtype dtype) noexcept;
[[nodiscard]] std::string_view to_string(Dtype dtype) noexcept;  // "F32", as in the file

/// One tensor to be written; the bytes are contiguous, row-major and little-endian, and stay the caller's.
struct TensorBytes {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// The largest header that readers accept, theirs and ours. 200,000 small tensors need about 20 MB.
inline constexpr size_t kMaxHeaderBytes = 100'000'000;

/// Length, header and padding: everything that stands before the data of `tensors`, in the order given.
///
/// Errors   kInvalidArgument   a name twice or "__metadata__"; a size that does not go with shape and dtype;
///                             a header above kMaxHeaderBytes.
[[nodiscard]] std::string make_header(std::span<const TensorBytes> tensors,
                                      const std::map<std::string, std::string>& metadata = {});

struct TensorView {
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  ///< into the file's bytes
};

struct FileView {
  std::map<std::string, TensorView, std::less<>> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads a whole file that lies in memory. Nothing in it is trusted: every offset is checked, tensors must fill the
/// data exactly, without gaps or overlaps.
///
/// Errors   kIo with `file`, what was found and what is required.
[[nodiscard]] FileView parse(std::span<const std::byte> file_bytes, std::string_view file);

}  // namespace trireme::safetensors
