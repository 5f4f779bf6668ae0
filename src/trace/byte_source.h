// Where a trace's bytes come from: a plain file, one compressed with gzip, or memory (tests, fuzzers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::trace {

/// Purpose        Bytes in order, once.
/// Thread safety  one thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fills up to `bytes`; fewer only at the end, 0 at and after it. [blocking]
  virtual size_t read(char* out, size_t bytes) = 0;

  /// Why the end came too early ("the gzip stream is cut off"); empty when it did not.
  [[nodiscard]] virtual std::string fault() const = 0;
};

/// Plain or gzip, told by its first bytes, whatever the name. Throws kIo with path and reason; only regular files are taken.
[[nodiscard]] std::unique_ptr<ByteSource> open_bytes(const std::string& path);

/// The text must outlive the source.
[[nodiscard]] std::unique_ptr<ByteSource> bytes_of(std::string_view text);

}  // namespace trireme::trace
