#include "base/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

// The parser tells its handler no positions, so the characters are counted on their way in. A string token is complete
// with its closing quote, without a look ahead: when key() is called, the count is that of the key's own line.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  const char& operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
};

class Flattener {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Flattener(std::string_view file, const int* line) : file_(file), line_(line) {}
  std::vector<FlatJsonEntry> take() { return std::move(entries_); }

  bool null() { return refuse("null"); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(static_cast<int64_t>(value)); }
  bool number_unsigned(number_unsigned_t value) {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return add(static_cast<double>(value));
    return add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) { return add(value); }
  bool string(string_t& value) { return add(value); }
  bool binary(binary_t& /*value*/) { return refuse("binary data"); }
  bool start_array(size_t /*size*/) { return refuse("an array"); }
  bool end_array() { return true; }
  bool start_object(size_t /*size*/) {
    constexpr size_t kDeepest = 16;  // the names of all levels are kept for each entry
    if (prefix_length_.size() >= kDeepest) refuse("nested deeper than settings can be");
    prefix_length_.push_back(path_.size());
    return true;
  }
  bool end_object() {
    prefix_length_.pop_back();
    return true;
  }
  bool key(string_t& name) {
    path_.resize(prefix_length_.back());
    if (!path_.empty()) path_ += '.';
    path_ += name;
    key_line_ = *line_;
    if (!seen_.insert(path_).second) fail(str("key '", path_, "' appears twice"));
    return true;
  }
  [[noreturn]] bool parse_error(size_t /*position*/, const std::string& /*token*/, const nlohmann::json::exception& e) {
    key_line_ = *line_;
    // "[json.exception.parse_error.101] parse error at line 2, column 1: syntax error ...": the place is told already.
    std::string text = e.what();
    if (const size_t tag = text.find("] "); text.starts_with('[') && tag != std::string::npos) text.erase(0, tag + 2);
    if (const size_t colon = text.find(": "); text.starts_with("parse error") && colon != std::string::npos) {
      text.erase(0, colon + 2);
    }
    fail(str("it is not JSON: ", text));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kConfig, str("[config] ", file_, ":", key_line_, ": ", what));
  }
  [[noreturn]] bool refuse(const char* what) const {
    fail(str(path_.empty() ? std::string("the file") : "key '" + path_ + "'", " is ", what,
             "; a number, a text, true, false or an object of these is required"));
  }
  bool add(JsonScalar value) {
    if (prefix_length_.empty()) refuse("a single value");
    entries_.push_back({path_, std::move(value), key_line_});
    return true;
  }

  std::string_view file_;
  const int* line_;
  int key_line_ = 1;
  std::string path_;
  std::vector<size_t> prefix_length_;
  std::set<std::string> seen_;
  std::vector<FlatJsonEntry> entries_;
};

}  // namespace

std::vector<FlatJsonEntry> parse_flat_json(std::string_view text, std::string_view file) {
  int line = 1;
  Flattener flattener(file, &line);
  nlohmann::json::sax_parse(CountingIterator(text.data(), &line), CountingIterator(text.data() + text.size(), &line),
                            &flattener, nlohmann::json::input_format_t::json, /*strict=*/true,
                            /*ignore_comments=*/true);
  return flattener.take();
}

std::string json_quote(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  // "3" would read back as an integer.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string to_json(const JsonScalar& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const int64_t* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const double* number = std::get_if<double>(&value)) return json_number(*number);
  return json_quote(std::get<std::string>(value));
}

}  // namespace trireme
