// Writing Chrome traces, which Perfetto and chrome://tracing open. docs/formats.md shows a whole file.
//
// One event a line, handed on in whole lines: a writer that is killed leaves whole events and at most one torn line, which `trireme trace` reads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace trireme::profile {

/// Takes pieces of the file in order, each ending with a line feed.
using WriteText = std::function<void(std::string_view text)>;

struct ChromeTraceInfo {
  int rank = -1;        ///< below 0: not one rank's
  int world_size = -1;  ///< below 0: unknown
  std::string host = {};
  std::string backend = {};
  /// Times are written relative to this, since a double, which viewers use, cannot hold microseconds since 1970 to the ns.
  int64_t base_ns = 0;
  int num_merged = 0;  ///< ranks in the file, when it holds several
};

struct ChromeSpan {
  std::string_view name;      ///< any bytes: quoted as JSON needs, and what is not UTF-8 replaced by U+FFFD
  std::string_view category;  ///< "collective", "data", "step", "cpu_op", ...
  int64_t start_ns = 0;       ///< CLOCK_REALTIME
  int64_t end_ns = 0;
  int64_t pid = 0;
  int64_t tid = 0;
  bool open = false;           ///< had not ended: closed at end_ns, and marked "Open": true
  std::string_view args = {};  ///< members of the object "args" as JSON, without braces
};

/// Purpose        Builds the text of a trace in pieces of 64 KiB and hands them on.
/// Invariants     A span that ends before it begins (a clock stepped back) gets duration 0 and the mark "Clock stepped back": true.
/// Lifetime       finish() writes the end; without it the file is cut off.
/// Thread safety  one thread at a time.
class ChromeTraceWriter {
 public:
  ChromeTraceWriter(WriteText write, const ChromeTraceInfo& info);

  void span(const ChromeSpan& span);
  void process_name(int64_t pid, std::string_view name);
  void thread_name(int64_t pid, int64_t tid, std::string_view name);
  /// An event that is JSON already: one object.
  void raw(std::string_view event);
  void finish();

  [[nodiscard]] uint64_t num_events() const { return num_events_; }
  [[nodiscard]] uint64_t num_bytes() const { return num_bytes_ + pending_.size(); }
  [[nodiscard]] uint64_t num_stepped_back() const { return num_stepped_back_; }

  /// "12.345": microseconds of a time relative to the base.
  [[nodiscard]] std::string us(int64_t time_ns) const;

 private:
  void begin_event();
  void hand_on();

  WriteText write_;
  int64_t base_ns_;
  std::string pending_;
  uint64_t num_events_ = 0;
  uint64_t num_bytes_ = 0;
  uint64_t num_stepped_back_ = 0;
};

/// ns as decimal microseconds with three digits: -1 is "-0.001".
[[nodiscard]] std::string decimal_us(int64_t ns);

}  // namespace trireme::profile
