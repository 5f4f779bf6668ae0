#include "diagnose/job/chrome_trace.h"

#include <nlohmann/json.hpp>

#include "base/str.h"
#include "diagnose/job/json_values.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

/// Counts the events: the objects directly in the top array, or in the array "traceEvents" of the top object.
class Counter : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*text*/) override { return true; }
  bool binary(binary_t& /*bytes*/) override { return true; }
  bool key(string_t& text) override {
    if (depth_ == 1) in_events_ = text == "traceEvents";
    return true;
  }
  bool start_object(size_t /*size*/) override {
    if (depth_ == 0) top_is_object_ = true;
    return ++depth_ < kDeepest;
  }
  bool end_object() override {
    --depth_;
    if (depth_ == (top_is_object_ ? 2 : 1) && (in_events_ || !top_is_object_)) ++events_;
    return true;
  }
  bool start_array(size_t /*size*/) override { return ++depth_ < kDeepest; }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    position_ = position;
    return false;
  }
  [[nodiscard]] int64_t events() const { return events_; }
  [[nodiscard]] size_t position() const { return position_; }

 private:
  static constexpr int kDeepest = 1000;
  int depth_ = 0;
  bool top_is_object_ = false;
  bool in_events_ = false;
  int64_t events_ = 0;
  size_t position_ = 0;
};

}  // namespace

bool is_chrome_trace(std::string_view head) {
  const std::string_view start = trimmed(head);
  if (start.starts_with('{')) return has(head, "\"traceEvents\"");
  return start.starts_with('[') && has(head, "\"ph\"") && has(head, "\"ts\"");
}

std::string look_at_chrome_trace(const std::string& path, const std::string& file) {
  constexpr size_t kMost = size_t{64} << 20;
  std::string what = str("a time line: 'trireme trace report ", file, "' tells where its time goes");
  std::string text;
  try {
    text = read_whole_file(path, kMost);
  } catch (const Error&) {
    return what;
  }
  Counter counter;
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &counter))
    return str(what, " (", grouped(counter.events()), " events)");
  const bool cut = counter.position() >= text.size();
  return cut ? str("a time line that is cut off: ", grouped(counter.events()),
                   counter.events() == 1 ? " whole event" : " whole events",
                   ", so counts are a lower limit; its process was killed, or the disk is full")
             : str("a time line that is no JSON: byte ", counter.position(), ", after ", grouped(counter.events()),
                   " whole events (a name with quotes that were not escaped, or a stray comma)");
}

}  // namespace trireme::diagnose
