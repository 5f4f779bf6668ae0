#include "trace/chrome_event.h"

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <cstring>

#include "trace/event_splitter.h"

namespace trireme::trace {

namespace od = simdjson::ondemand;

static_assert(kPadding >= simdjson::SIMDJSON_PADDING);

struct EventParser::Parsers {
  od::parser events;
  od::parser args;
  simdjson::dom::parser strict;
};

EventParser::EventParser() : parsers_(std::make_unique<Parsers>()) {}
EventParser::~EventParser() = default;

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

simdjson::padded_string_view padded(std::string_view text) {
  return simdjson::padded_string_view(text, text.size() + kPadding);
}

/// A time is a number, or a number in quotes, which some writers use.
bool time_of(od::value value, int64_t& ns, std::string_view& text) {
  std::string_view token = trimmed(value.raw_json_token());
  text = token;
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"') token = token.substr(1, token.size() - 2);
  return parse_us(token, ns);
}

/// The value as it stands, when it is a scalar.
std::string_view scalar_of(od::value value) {
  const std::string_view token = trimmed(value.raw_json_token());
  return token.empty() || token.front() == '{' || token.front() == '[' ? std::string_view{} : token;
}

std::string_view string_of(od::value value) {
  std::string_view text;
  return value.get_string().get(text) == simdjson::SUCCESS ? text : std::string_view{};
}

/// Whether the field is one that is kept; then `error` says whether its value could be read.
bool take(std::string_view key, od::value value, ChromeEvent& event, simdjson::error_code& error) {
  if (key == "ph") {
    const std::string_view text = string_of(value);
    event.phase = text.empty() ? '\0' : text.front();
  } else if (key == "name") {
    event.name = string_of(value);
  } else if (key == "cat") {
    event.category = string_of(value);
  } else if (key == "ts") {
    event.has_time = time_of(value, event.time_ns, event.time_text);
  } else if (key == "dur") {
    event.has_duration = time_of(value, event.duration_ns, event.duration_text);
  } else if (key == "pid") {
    event.pid = scalar_of(value);
  } else if (key == "tid") {
    event.tid = scalar_of(value);
  } else if (key == "id") {
    event.id = scalar_of(value);
  } else if (key == "args") {
    error = simdjson::to_json_string(value).get(event.args);
    if (error == simdjson::SUCCESS && (event.args.empty() || event.args.front() != '{')) event.args = {};
  } else {
    return false;
  }
  return true;
}

simdjson::error_code read_event(od::parser& parser, std::string_view text, ChromeEvent& event) {
  event = {};
  event.text = text;
  od::document document;
  if (const auto error = parser.iterate(padded(text)).get(document)) return error;
  od::object object;
  if (const auto error = document.get_object().get(object)) return error;
  for (auto field : object) {
    if (const auto error = field.error()) return error;
    std::string_view key;
    // Keys of events have no escapes; one that has is not one of ours.
    if (const auto error = field.unescaped_key().get(key)) return error;
    od::value value;
    if (const auto error = field.value().get(value)) return error;
    simdjson::error_code error = simdjson::SUCCESS;
    (void)take(key, value, event, error);
    if (error) return error;
  }
  return simdjson::SUCCESS;
}

int64_t number_of(od::value value, int64_t fallback) {
  std::string_view token = trimmed(value.raw_json_token());
  if (token.size() >= 2 && token.front() == '"') token = token.substr(1, token.size() - 2);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), number);
  return error == std::errc{} && end == token.data() + token.size() ? number : fallback;
}

template <typename Take>
void for_each_arg(od::parser& parser, std::string_view args, const Take& take_one) {
  od::document document;
  od::object object;
  if (args.empty() || parser.iterate(padded(args)).get(document) || document.get_object().get(object)) return;
  for (auto field : object) {
    std::string_view key;
    od::value value;
    if (field.error() || field.unescaped_key().get(key) || field.value().get(value)) return;
    take_one(key, value);
  }
}

/// A list of integers; anything else in it makes it empty.
std::vector<int64_t> dims_of(od::value value) {
  std::vector<int64_t> dims;
  od::array array;
  if (value.get_array().get(array)) return dims;
  bool whole = true;
  for (auto item : array) {
    od::value one;
    if (item.get(one)) return {};
    const std::string_view token = scalar_of(one);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), number);
    if (token.empty() || error != std::errc{} || end != token.data() + token.size()) whole = false;
    dims.push_back(number);
  }
  return whole ? dims : std::vector<int64_t>{};
}

std::vector<std::string> strings_of(od::value value) {
  std::vector<std::string> strings;
  od::array array;
  if (value.get_array().get(array)) return strings;
  for (auto item : array) {
    od::value one;
    if (item.get(one)) return strings;
    strings.emplace_back(string_of(one));
  }
  return strings;
}

}  // namespace

std::string EventParser::parse(std::string_view text, ChromeEvent& event) {
  simdjson::error_code error = read_event(parsers_->events, text, event);
  if (error == simdjson::UTF8_ERROR) {
    cleaned_ = clean_utf8(text);
    const size_t size = cleaned_.size();
    cleaned_.resize(size + kPadding);
    error = read_event(parsers_->events, std::string_view(cleaned_).substr(0, size), event);
  }
  return error == simdjson::SUCCESS ? std::string{} : simdjson::error_message(error);
}

CollectiveArgs EventParser::collective_args(std::string_view args) {
  CollectiveArgs result;
  for_each_arg(parsers_->args, args, [&result](std::string_view key, od::value value) {
    if (key == "Collective name") result.op = string_of(value);
    if (key == "dtype") result.dtype = string_of(value);
    // Names of groups are numbers in some versions, and not in quotes.
    if (key == "Process Group Name") {
      std::string_view token = scalar_of(value);
      if (token.size() >= 2 && token.front() == '"') token = token.substr(1, token.size() - 2);
      result.group = token;
    }
    if (key == "Process Group Description") result.description = string_of(value);
    if (key == "Process Group Ranks") result.ranks = string_of(value);
    if (key == "In msg nelems") result.in_elements = number_of(value, -1);
    if (key == "Out msg nelems") result.out_elements = number_of(value, -1);
    if (key == "Group size") result.group_size = number_of(value, -1);
    if (key == "Rank") result.rank = number_of(value, -1);
    if (key == "Src Rank") result.source = number_of(value, -1);
    if (key == "Dst Rank") result.destination = number_of(value, -1);
    if (key == "Seq") result.sequence = number_of(value, -1);
    if (key == "External id") result.external_id = number_of(value, -1);
    if (key == "Step") result.step = number_of(value, -1);
    if (key == "Open") result.open = scalar_of(value) == "true";
  });
  return result;
}

OperatorArgs EventParser::operator_args(std::string_view args) {
  OperatorArgs result;
  for_each_arg(parsers_->args, args, [&result](std::string_view key, od::value value) {
    if (key == "Input Dims" || key == "Input dims") {
      od::array array;
      if (value.get_array().get(array)) return;
      for (auto item : array) {
        od::value one;
        if (item.get(one)) return;
        result.dims.push_back(dims_of(one));
      }
    }
    if (key == "Input type") result.types = strings_of(value);
    if (key == "Concrete Inputs") result.concrete = strings_of(value);
  });
  return result;
}

std::string EventParser::text_arg(std::string_view args, std::string_view wanted) {
  std::string result;
  for_each_arg(parsers_->args, args, [&](std::string_view key, od::value value) {
    if (key != wanted) return;
    std::string_view token = trimmed(value.raw_json_token());
    result = token.starts_with('"') ? string_of(value) : token;
  });
  return result;
}

bool EventParser::is_json(std::string_view text) {
  simdjson::dom::element element;
  return parsers_->strict.parse(reinterpret_cast<const uint8_t*>(text.data()), text.size(), false).get(element) ==
         simdjson::SUCCESS;
}

bool parse_us(std::string_view text, int64_t& ns) {
  constexpr int64_t kMaxUs = INT64_MAX / 1000 - 1;
  const char* at = text.data();
  const char* end = at + text.size();
  const bool negative = at != end && *at == '-';
  if (negative) ++at;
  int64_t whole = 0;
  int digits = 0;
  for (; at != end && *at >= '0' && *at <= '9'; ++at, ++digits) {
    if (whole > (kMaxUs - 9) / 10) return false;
    whole = whole * 10 + (*at - '0');
  }
  int64_t thousandths = 0;
  if (digits > 0 && at != end && *at == '.') {
    ++at;
    int64_t scale = 100;
    bool round_up = false;
    int place = 0;
    for (; at != end && *at >= '0' && *at <= '9'; ++at, ++place) {
      if (place == 3) round_up = *at >= '5';
      thousandths += (*at - '0') * scale;
      scale /= 10;
    }
    if (round_up) ++thousandths;
  }
  if (digits > 0 && at == end) {
    ns = whole * 1000 + thousandths;
    if (negative) ns = -ns;
    return true;
  }
  // Exponents, and nothing else, take the slow way.
  double value = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || last != text.data() + text.size() || !(std::abs(value) < static_cast<double>(kMaxUs))) {
    return false;
  }
  ns = static_cast<int64_t>(std::llround(value * 1000));
  return true;
}

std::string clean_utf8(std::string_view text) {
  std::string clean(text);
  size_t at = 0;
  while (at < clean.size()) {
    const auto lead = static_cast<unsigned char>(clean[at]);
    size_t length = 1;
    if (lead >= 0xC2 && lead <= 0xDF) length = 2;
    if (lead >= 0xE0 && lead <= 0xEF) length = 3;
    if (lead >= 0xF0 && lead <= 0xF4) length = 4;
    bool good = lead < 0x80 || length > 1;
    for (size_t i = 1; i < length && good; ++i) {
      good = at + i < clean.size() && (static_cast<unsigned char>(clean[at + i]) & 0xC0U) == 0x80;
    }
    if (good && length > 2) {  // overlong, surrogates, beyond the last plane
      const auto second = static_cast<unsigned char>(clean[at + 1]);
      good = !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second > 0x9F) && !(lead == 0xF0 && second < 0x90) &&
             !(lead == 0xF4 && second > 0x8F);
    }
    if (!good) clean[at] = '?';
    at += good ? length : 1;
  }
  return clean;
}

}  // namespace trireme::trace
