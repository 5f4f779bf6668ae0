// index.json of a checkpoint: which tensor is in which file, how large the files are, and checksums of them and itself.
//
// {
//  "schema": 1,
//  "step": 1200,
//  "weight_map": {"model.bias": "model-00001-of-00001.safetensors"},
//  "files": {"model-00001-of-00001.safetensors": {"bytes": 160, "xxh3_64": "d9a2cbe1bb3e6f77"}},
//  "metadata": {"epoch": "3"},
//  "xxh3_64": "1d8d3f6a0c9e4b52"
// }
// The last line is the checksum of all bytes before the comma in front of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

inline constexpr const char* kIndexName = "index.json";
inline constexpr const char* kShardName = "model-00001-of-00001.safetensors";
inline constexpr std::string_view kStepPrefix = "step-";
inline constexpr std::string_view kTempPrefix = ".tmp-";

/// Twice the largest header of a shard: room for the names of all tensors, and for metadata.
inline constexpr size_t kMaxIndexBytes = 200'000'000;

struct FileEntry {
  uint64_t bytes = 0;
  std::string checksum;  ///< 16 hexadecimal digits
};

struct Index {
  int64_t step = 0;
  std::map<std::string, std::string> weight_map;
  std::map<std::string, FileEntry> files;
  std::map<std::string, std::string> metadata;
};

/// Errors   kInvalidArgument   text that is no UTF-8; more than kMaxIndexBytes.
[[nodiscard]] std::string to_text(const Index& index);

/// The checksum only tells accidents, so nothing in the text is trusted.
///
/// Errors   kIo with `path` and what is wrong: cut off, changed, another schema, a name twice, a count that is none, a
///          file name that leaves the folder.
[[nodiscard]] Index parse_index(std::string_view text, const std::string& path);

/// 1200 of "step-1200"; nothing for other names.
[[nodiscard]] std::optional<int64_t> step_of(std::string_view folder_name) noexcept;

}  // namespace trireme::checkpoint
