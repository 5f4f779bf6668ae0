// System calls on files as checkpoints need them: every error names the path, the reason and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/fd.h"

namespace trireme::checkpoint {

/// Throws kIo: "[checkpoint.<operation>] <path>: cannot <what>: <reason of error_number>. <what to do>".
[[noreturn]] void throw_io(const char* operation, const std::string& path, const char* what, int error_number);

struct FileBytes {
  std::unique_ptr<std::byte, void (*)(void*)> data{nullptr, nullptr};  ///< aligned to 64 bytes
  size_t size = 0;
  uint64_t checksum = 0;  ///< XXH3, 64 bits, seed 0
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data.get(), size}; }
};

/// Reads a whole regular file and hashes it on the way. kIo when it has more than `most` bytes; kOutOfMemory when it does
/// not fit.
[[nodiscard]] FileBytes read_file(const std::string& path, size_t most = SIZE_MAX);

/// Writes one file front to back, and hashes it on the way.
class FileWriter {
 public:
  explicit FileWriter(std::string path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Waits until the file is on disk.
  void finish();
  [[nodiscard]] uint64_t size() const noexcept { return size_; }
  [[nodiscard]] uint64_t checksum() const noexcept;

 private:
  struct Hash;
  std::string path_;
  Fd fd_;
  uint64_t size_ = 0;
  std::unique_ptr<Hash> hash_;
};

/// Waits until the names in the folder are on disk.
void sync_folder(const std::string& path);

[[nodiscard]] uint64_t checksum_of(std::span<const std::byte> bytes) noexcept;
/// 16 hexadecimal digits.
[[nodiscard]] std::string to_hex(uint64_t value);

}  // namespace trireme::checkpoint
