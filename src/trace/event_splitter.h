// From a Chrome trace of any size to the texts of its events, one at a time, in bounded memory.
//
// Two forms are read: an array of events, whose closing bracket may be missing, and an object with the array "traceEvents" among other keys.
// Files that are cut off, or in which single events are no JSON, give the events that are whole; what was wrong is kept, with its position.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trace/byte_source.h"

namespace trireme::trace {

/// One place where the file is not JSON.
struct Damage {
  uint64_t offset = 0;  ///< bytes from the start of the (decompressed) file
  std::string what;     ///< "an event that is not JSON: ..."
};

/// What a file said beside its events, and what was wrong with it.
struct SplitNotes {
  bool is_trace = false;  ///< an array of events was found
  bool object_form = false;
  bool cut = false;      ///< the file ends before its end: counts are a lower limit
  bool gave_up = false;  ///< too many damaged events: the rest was not read
  uint64_t bytes = 0;    ///< read, decompressed
  uint64_t num_damaged = 0;
  std::vector<Damage> damages;  ///< the first kKeptDamages
  /// Raw JSON of the other keys of the object form, for those of at most kMaxHeaderValue bytes.
  std::map<std::string, std::string, std::less<>> header;
  [[nodiscard]] bool valid_json() const { return is_trace && !cut && num_damaged == 0; }
};

inline constexpr size_t kKeptDamages = 20;
inline constexpr uint64_t kMaxDamages = 1000;
inline constexpr size_t kMaxHeaderValue = size_t{1} << 20;
inline constexpr size_t kMaxEventBytes = size_t{8} << 20;
/// Bytes behind every event text that may be read (simdjson wants them).
inline constexpr size_t kPadding = 64;

/// Purpose        next() until it gives an empty text; refuse() when the last one is no JSON, which makes it look for the next event inside it.
/// Invariants     An event's text begins with { and ends with }, and is at most kMaxEventBytes long.
/// Cost           a buffer of 1 MiB, or twice the largest event.
/// Thread safety  one thread.
class EventSplitter {
 public:
  explicit EventSplitter(std::unique_ptr<ByteSource> source);

  /// Valid until the next call, with kPadding readable bytes behind it; empty at the end.
  [[nodiscard]] std::string_view next();

  /// The text that next() gave is no JSON, for that reason.
  void refuse(const std::string& why);

  [[nodiscard]] uint64_t offset() const { return base_ + start_; }  ///< of the last text
  [[nodiscard]] const SplitNotes& notes() const { return notes_; }

 private:
  enum class Place { kBegin, kHeader, kEvents, kEnd };
  enum class Scan { kWhole, kEndOfFile, kControl, kTooLong };

  bool fill();
  int peek();
  int skip_space();
  Scan scan_value(size_t& end);
  void begin();
  void header();
  bool header_key(std::string& key);
  void resync(const std::string& what);
  void damaged(uint64_t offset, const std::string& what);
  void end_of_file(bool inside);

  std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;
  uint64_t base_ = 0;  ///< offset in the file of buffer_[0]
  size_t start_ = 0;   ///< bytes before this are done with
  size_t at_ = 0;      ///< looked at next
  size_t end_ = 0;     ///< bytes in the buffer
  bool drained_ = false;
  bool event_before_ = false;  ///< an event stands before the comma that comes now
  bool comma_before_ = false;
  Place place_ = Place::kBegin;
  SplitNotes notes_;
};

}  // namespace trireme::trace
