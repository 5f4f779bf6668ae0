// Cuts a stream of bytes into whole lines with a prefix, so that the ranks' output does not mix within a line.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace trireme::launch {

/// A line that grows beyond this is shown in pieces, each as a line of its own. The log files keep it whole.
inline constexpr size_t kMaxLineBytes = size_t{64} * 1024;

/// Purpose     bytes of one stream of one rank in, prefixed whole lines out.
/// Carriage    A progress bar rewrites its line with '\r'. Only its latest state is kept, and shown at most once a
/// returns     second, as a line.
/// Bytes       are passed on as they are, NUL and invalid UTF-8 included.
class LineSplitter {
 public:
  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Appends to `out` what has become complete.
  void add(std::string_view bytes, std::chrono::steady_clock::time_point now, std::string& out);

  /// The stream has ended: appends what is left, with a line end.
  void finish(std::string& out);

 private:
  void emit(std::string_view line, std::string& out) const;

  std::string prefix_;
  std::string partial_;
  bool return_pending_ = false;  ///< the last byte was '\r': a line end if '\n' follows, else a rewrite
  std::chrono::steady_clock::time_point last_rewrite_{};
};

}  // namespace trireme::launch
