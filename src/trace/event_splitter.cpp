#include "trace/event_splitter.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/str.h"

namespace trireme::trace {
namespace {

constexpr size_t kChunk = size_t{1} << 20;
constexpr int kEnd = -1;

enum Class : uint8_t { kOther, kQuote, kBackslash, kOpen, kClose, kControl };

constexpr std::array<uint8_t, 256> kClass = [] {
  std::array<uint8_t, 256> table{};
  for (size_t c = 0; c < 0x20; ++c) table[c] = kControl;
  table['"'] = kQuote;
  table['\\'] = kBackslash;
  table['{'] = table['['] = kOpen;
  table['}'] = table[']'] = kClose;
  return table;
}();

bool is_space(int c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// Keys that an event may begin with. Objects inside arguments begin with others, so a search for the next event passes over them.
constexpr std::array<std::string_view, 14> kEventKeys = {"ph", "name", "cat", "pid", "tid", "ts",   "dur",
                                                         "id", "args", "s",   "bp",  "tts", "tdur", "cname"};

/// Where an event seems to begin, at or after `from`: `{"key"` behind `},`. npos: nowhere.
size_t find_event(std::string_view text, size_t from) {
  for (size_t at = text.find('{', from); at != std::string_view::npos; at = text.find('{', at + 1)) {
    size_t before = at;
    while (before > 0 && is_space(text[before - 1])) --before;
    if (before == 0 || text[before - 1] != ',') continue;
    --before;
    while (before > 0 && is_space(text[before - 1])) --before;
    if (before == 0 || text[before - 1] != '}') continue;
    size_t key = at + 1;
    while (key < text.size() && is_space(text[key])) ++key;
    if (key >= text.size() || text[key] != '"') continue;
    const std::string_view beginning = text.substr(key + 1, 8);
    const std::string_view word = beginning.substr(0, beginning.find('"'));
    if (word.size() == beginning.size()) continue;
    if (std::find(kEventKeys.begin(), kEventKeys.end(), word) != kEventKeys.end()) return at;
  }
  return std::string_view::npos;
}

}  // namespace

EventSplitter::EventSplitter(std::unique_ptr<ByteSource> source)
    : source_(std::move(source)), buffer_(kChunk + kPadding) {}

bool EventSplitter::fill() {
  if (drained_) return false;
  if (start_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + start_, end_ - start_);
    base_ += start_;
    at_ -= start_;
    end_ -= start_;
    start_ = 0;
  }
  if (end_ + kPadding >= buffer_.size()) buffer_.resize(2 * buffer_.size());
  const size_t n = source_->read(buffer_.data() + end_, buffer_.size() - kPadding - end_);
  end_ += n;
  std::memset(buffer_.data() + end_, 0, kPadding);
  notes_.bytes = base_ + end_;
  if (n == 0) drained_ = true;
  return n > 0;
}

int EventSplitter::peek() {
  if (at_ == end_ && !fill()) return kEnd;
  return static_cast<unsigned char>(buffer_[at_]);
}

int EventSplitter::skip_space() {
  int c = peek();
  while (c != kEnd && is_space(c)) {
    ++at_;
    start_ = at_;
    c = peek();
  }
  return c;
}

// From the { or [ at start_ to behind its partner.
EventSplitter::Scan EventSplitter::scan_value(size_t& end) {
  size_t depth = 0;
  bool in_string = false;
  at_ = start_;
  while (true) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(buffer_.data());
    for (size_t i = at_; i < end_; ++i) {
      const uint8_t kind = kClass[bytes[i]];
      if (kind == kOther) continue;
      if (in_string) {
        if (kind == kQuote) {
          in_string = false;
        } else if (kind == kBackslash) {
          if (i + 1 == end_) {  // what it escapes is not there yet
            at_ = i;
            if (!fill()) return Scan::kEndOfFile;
            bytes = reinterpret_cast<const unsigned char*>(buffer_.data());
            i = at_;
          }
          ++i;
        } else if (kind == kControl) {
          return Scan::kControl;
        }
      } else if (kind == kQuote) {
        in_string = true;
      } else if (kind == kOpen) {
        ++depth;
      } else if (kind == kClose && --depth == 0) {
        end = i + 1;
        return end - start_ > kMaxEventBytes ? Scan::kTooLong : Scan::kWhole;
      }
    }
    at_ = end_;
    if (end_ - start_ > kMaxEventBytes) return Scan::kTooLong;
    if (!fill()) return Scan::kEndOfFile;
  }
}

void EventSplitter::damaged(uint64_t offset, const std::string& what) {
  ++notes_.num_damaged;
  if (notes_.damages.size() < kKeptDamages) notes_.damages.push_back({offset, what});
  if (notes_.num_damaged >= kMaxDamages) {
    notes_.gave_up = true;
    place_ = Place::kEnd;
  }
}

// At the first byte: [ or {, perhaps behind a byte order mark.
void EventSplitter::begin() {
  int c = skip_space();
  while (c == 0xEF || c == 0xBB || c == 0xBF) {
    start_ = ++at_;
    c = skip_space();
  }
  if (c == '[') {
    start_ = ++at_;
    notes_.is_trace = true;
    place_ = Place::kEvents;
  } else if (c == '{') {
    start_ = ++at_;
    notes_.object_form = true;
    place_ = Place::kHeader;
  } else {
    place_ = Place::kEnd;
  }
}

bool EventSplitter::header_key(std::string& key) {
  key.clear();
  start_ = ++at_;  // behind the quote
  for (int c = peek(); c != kEnd; c = peek()) {
    start_ = ++at_;
    if (c == '"') return true;
    if (key.size() < 64) key.push_back(static_cast<char>(c));
  }
  return false;
}

// The keys before and after the events. Values go by in pieces: some, such as stack frames, are as large as the events.
void EventSplitter::header() {
  int c = skip_space();
  while (c == ',') {
    start_ = ++at_;
    c = skip_space();
  }
  if (c != '"') {
    if (c == kEnd) {
      end_of_file(true);
    } else if (c != '}') {
      damaged(base_ + at_, str("where the next key is expected stands '", static_cast<char>(c), "'"));
    }
    place_ = Place::kEnd;
    return;
  }
  std::string key;
  if (!header_key(key) || skip_space() == kEnd) return end_of_file(true);
  if (peek() == ':') start_ = ++at_;
  c = skip_space();
  if (key == "traceEvents" && c == '[') {
    start_ = ++at_;
    notes_.is_trace = true;
    event_before_ = comma_before_ = false;
    place_ = Place::kEvents;
    return;
  }
  std::string value;
  size_t depth = 0;
  bool in_string = false;
  bool escaped = false;
  for (c = peek(); c != kEnd; c = peek()) {
    const uint8_t kind = kClass[static_cast<size_t>(c)];
    if (!in_string && depth == 0 && (c == ',' || c == '}')) {
      if (value.size() <= kMaxHeaderValue) notes_.header[key] = std::move(value);
      return;
    }
    if (in_string) {
      in_string = escaped || kind != kQuote;
      escaped = !escaped && kind == kBackslash;
    } else if (kind == kQuote) {
      in_string = true;
    } else if (kind == kOpen) {
      ++depth;
    } else if (kind == kClose && depth > 0) {
      --depth;
    }
    if (value.size() <= kMaxHeaderValue) value.push_back(static_cast<char>(c));
    start_ = ++at_;
  }
  end_of_file(true);
}

void EventSplitter::end_of_file(bool inside) {
  place_ = Place::kEnd;
  const std::string fault = source_->fault();
  if (inside || !fault.empty()) notes_.cut = true;
  if (!fault.empty()) notes_.damages.push_back({base_ + end_, fault});
}

// The text at start_ is no event. The next one that looks like one is behind a }, and begins with a known key.
void EventSplitter::resync(const std::string& what) {
  damaged(base_ + start_, what);
  if (place_ == Place::kEnd) return;
  size_t from = 1;  // relative to start_, which fill() keeps the meaning of
  while (true) {
    const std::string_view text(buffer_.data() + start_, end_ - start_);
    const size_t found = find_event(text, from);
    if (found != std::string_view::npos) {
      start_ += found;
      at_ = start_;
      comma_before_ = true;
      event_before_ = false;
      return;
    }
    // Enough is kept for a "}, {" and its key that end in the next piece.
    constexpr size_t kTail = 256;
    if (text.size() > kTail) {
      start_ += text.size() - kTail;
      from = 0;
    }
    at_ = end_;
    if (!fill()) break;
  }
  // Nothing follows. A file that ends with a closing bracket was written to its end.
  std::string_view tail(buffer_.data() + start_, end_ - start_);
  while (!tail.empty() && is_space(tail.back())) tail.remove_suffix(1);
  const bool cut = tail.empty() || (tail.back() != ']' && tail.back() != '}');
  if (cut) {  // what looked damaged is where the file ends
    --notes_.num_damaged;
    if (!notes_.damages.empty() && notes_.num_damaged < kKeptDamages) notes_.damages.pop_back();
  }
  end_of_file(cut);
}

void EventSplitter::refuse(const std::string& why) {
  at_ = start_;
  if (place_ == Place::kEvents) resync("an event is not JSON: " + why);
}

std::string_view EventSplitter::next() {
  if (place_ == Place::kEvents && at_ > start_) start_ = at_;  // done with the last one
  while (place_ != Place::kEnd) {
    if (place_ == Place::kBegin) {
      begin();
      continue;
    }
    if (place_ == Place::kHeader) {
      header();
      continue;
    }
    const int c = skip_space();
    start_ = at_;
    if (c == kEnd) {
      end_of_file(true);
    } else if (c == ',') {
      if (!event_before_) damaged(base_ + at_, "a comma without an event before it");
      event_before_ = false;
      comma_before_ = true;
      start_ = ++at_;
    } else if (c == ']') {
      if (comma_before_ && !event_before_) damaged(base_ + at_, "a comma without an event behind it");
      start_ = ++at_;
      place_ = notes_.object_form ? Place::kHeader : Place::kEnd;
      if (place_ == Place::kEnd) {
        const int after = skip_space();
        if (after != kEnd) damaged(base_ + at_, "text behind the end of the array");
        if (!source_->fault().empty()) end_of_file(false);
      }
    } else if (c == '{') {
      if (event_before_) damaged(base_ + at_, "no comma between two events");
      if (place_ == Place::kEnd) break;
      size_t end = 0;
      const Scan scan = scan_value(end);
      if (scan == Scan::kWhole) {
        at_ = end;
        event_before_ = true;
        comma_before_ = false;
        return {buffer_.data() + start_, end - start_};
      }
      if (scan == Scan::kControl) {
        resync("an event is not JSON: a control character in a string");
      } else if (scan == Scan::kTooLong) {
        resync(str("an event is longer than ", kMaxEventBytes, " bytes"));
      } else if (find_event({buffer_.data() + start_, end_ - start_}, 1) == std::string_view::npos) {
        end_of_file(true);  // cut off inside this event
      } else {
        resync("an event is not JSON: a string or bracket is not closed");
      }
    } else {
      resync(str("where an event is expected stands '", static_cast<char>(c), "'"));
    }
  }
  return {};
}

}  // namespace trireme::trace
