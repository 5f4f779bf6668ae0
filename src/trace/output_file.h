// A file that has its name only when it is whole; compressed with gzip when that name ends with .gz.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::trace {

/// Purpose        Streams text into PATH.new and renames it in finish(). [blocking]
/// Lifetime       destroyed without finish(): PATH.new is removed, PATH is as it was.
/// Thread safety  one thread at a time.
class OutputFile {
 public:
  /// Throws kIo with path and reason, as write() and finish() do.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::trace
