#include "base/config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>

#include "base/nearest.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

[[noreturn]] void fail(const std::string& place, const std::string& what) {
  throw Error(ErrorKind::kConfig, str("[config] ", place, ": ", what));
}

constexpr const char* kTypeNames[] = {"true or false", "a whole number", "a number", "a text"};

std::string environment_name(std::string_view prefix, std::string_view key) {
  std::string name = str(prefix, "_", key);
  for (char& c : name) c = c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// "1,000,000" where 1e+06 would be printed.
std::string show_limit(double limit) {
  if (limit != std::floor(limit) || std::abs(limit) > 9e15) return str(limit);
  return grouped(static_cast<int64_t>(limit));
}

// What a wrong key of a section is to be chosen from, where no key is near.
std::string keys_of_section(std::string_view key, const std::vector<std::string>& keys) {
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view section = key.substr(0, dot + 1);
  std::vector<std::string> inside;
  for (const std::string& known : keys) {
    if (known.starts_with(section)) inside.push_back(known);
  }
  return inside.empty() ? std::string{} : str("; there are ", join(inside));
}

std::string show(const JsonScalar& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? str("'", *text, "'") : to_json(value);
}

bool within_limits(const JsonScalar& value, const Setting& setting) {
  double number = 0;
  if (const int64_t* whole = std::get_if<int64_t>(&value)) {
    number = static_cast<double>(*whole);
  } else if (const double* real = std::get_if<double>(&value)) {
    number = *real;
  } else {
    return true;
  }
  return number >= setting.min && number <= setting.max;
}

// Nothing where the declared default is not allowed itself: it holds the place of one that another setting decides.
std::string show_default(const Setting& setting) {
  if (!within_limits(setting.default_value, setting)) return {};
  return str(" (default ", show(setting.default_value), ")");
}

// What a person typed, as the type that the setting has. Empty result: it does not read as that type.
bool read_as(std::string_view text, JsonScalar& value) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (std::holds_alternative<std::string>(value)) {
    value = std::string(text);
    return true;
  }
  if (std::holds_alternative<bool>(value)) {
    if (text == "true" || text == "1" || text == "on" || text == "yes") return value = true, true;
    if (text == "false" || text == "0" || text == "off" || text == "no") return value = false, true;
    return false;
  }
  if (std::holds_alternative<int64_t>(value)) {
    int64_t number = 0;
    const auto [at, error] = std::from_chars(begin, end, number);
    if (error != std::errc{} || at != end || text.empty()) return false;
    value = number;
    return true;
  }
  double number = 0;
  const auto [at, error] = std::from_chars(begin, end, number);
  if (error != std::errc{} || at != end || text.empty() || !std::isfinite(number)) return false;
  value = number;
  return true;
}

}  // namespace

Config::Config(std::vector<Setting> settings) : settings_(std::move(settings)) {
  for (const Setting& setting : settings_) {
    Slot slot;
    slot.setting = &setting;
    slot.value = setting.default_value;
    const bool added = slots_.emplace(setting.key, std::move(slot)).second;
    TRIREME_CHECK(added, "setting '" + setting.key + "' is declared twice");
  }
}

Config::Slot& Config::find(std::string_view key, const std::string& place) {
  if (const auto it = slots_.find(key); it != slots_.end()) return it->second;
  std::vector<std::string> keys;
  for (const Setting& setting : settings_) keys.push_back(setting.key);
  const std::string hint = did_you_mean(key, keys);
  fail(place, str("unknown key '", key, "'", hint.empty() ? keys_of_section(key, keys) : hint));
}

const Config::Slot& Config::known(std::string_view key) const {
  const auto it = slots_.find(key);
  TRIREME_CHECK(it != slots_.end(), "no setting '" + std::string(key) + "'");
  return it->second;
}

void Config::assign(std::string_view key, JsonScalar value, Origin origin, const std::string& place) {
  Slot& slot = find(key, place);
  const Setting& setting = *slot.setting;
  // 1 is a fine value for a setting that takes fractions, and 2.0 for one that counts.
  if (std::holds_alternative<double>(setting.default_value)) {
    if (const int64_t* whole = std::get_if<int64_t>(&value)) value = static_cast<double>(*whole);
  } else if (std::holds_alternative<int64_t>(setting.default_value)) {
    const double* number = std::get_if<double>(&value);
    if (number != nullptr && std::abs(*number) < 9e15 && *number == std::floor(*number)) {
      value = static_cast<int64_t>(*number);
    }
  }
  if (value.index() != setting.default_value.index()) {
    fail(place, str("key '", key, "' is ", show(value), "; ", kTypeNames[setting.default_value.index()], " is required",
                    show_default(setting)));
  }
  if (!within_limits(value, setting)) {
    fail(place, str("key '", key, "' is ", show(value), "; a value from ", show_limit(setting.min), " to ",
                    show_limit(setting.max), " is required"));
  }
  if (!setting.choices.empty()) {
    const std::string& text = std::get<std::string>(value);
    if (std::find(setting.choices.begin(), setting.choices.end(), text) == setting.choices.end()) {
      fail(place, str("key '", key, "' is '", text, "'; one of ", join(setting.choices), " is required",
                      did_you_mean(text, setting.choices)));
    }
  }
  if (origin < slot.origin) return;
  slot.value = std::move(value);
  slot.origin = origin;
  slot.place = place;
}

void Config::load_json(std::string_view text, const std::string& file) {
  for (FlatJsonEntry& entry : parse_flat_json(text, file)) {
    assign(entry.key, std::move(entry.value), Origin::kFile, str(file, ":", entry.line));
  }
}

void Config::load_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path, "cannot be read; give the path of a JSON file");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  load_json(text, path);
}

void Config::load_environment(std::string_view prefix, const char* const* environment) {
  const std::string start = str(prefix, "_");
  std::map<std::string, std::string> keys;
  std::vector<std::string> names;
  for (const Setting& setting : settings_) {
    names.push_back(environment_name(prefix, setting.key));
    keys.emplace(names.back(), setting.key);
  }
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.substr(0, start.size()) != start) continue;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string name(entry.substr(0, equals));
    const auto it = keys.find(name);
    if (it == keys.end()) fail(str("environment ", name), str("no such setting", did_you_mean(name, names)));
    if (equals + 1 == entry.size()) continue;  // set to nothing counts as not set
    set_text(it->second, entry.substr(equals + 1), Origin::kEnvironment, str("environment ", name));
  }
}

void Config::set_assignment(std::string_view assignment, Origin origin, const std::string& place) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    fail(place, str("'", assignment, "' is not of the form key=value, for example optim.learning_rate=0.1"));
  }
  set_text(assignment.substr(0, equals), assignment.substr(equals + 1), origin,
           str(place, " ", assignment.substr(0, equals)));
}

void Config::set_text(std::string_view key, std::string_view text, Origin origin, const std::string& place) {
  JsonScalar value = find(key, place).setting->default_value;
  if (!read_as(text, value)) value = std::string(text);  // assign() says what is required
  assign(key, std::move(value), origin, place);
}

void Config::set(std::string_view key, JsonScalar value, Origin origin, const std::string& place) {
  assign(key, std::move(value), origin, place);
}

void Config::set_place_in_file(std::string_view key, const std::string& place) {
  const auto it = slots_.find(key);
  if (it != slots_.end() && it->second.origin == Origin::kFile) it->second.place = place;
}

void Config::set_default(std::string_view key, JsonScalar value, const std::string& place) {
  assign(key, std::move(value), Origin::kDefault, place);
}

bool Config::get_bool(std::string_view key) const { return std::get<bool>(known(key).value); }
int64_t Config::get_int(std::string_view key) const { return std::get<int64_t>(known(key).value); }
double Config::get_double(std::string_view key) const { return std::get<double>(known(key).value); }
const std::string& Config::get_string(std::string_view key) const { return std::get<std::string>(known(key).value); }
Origin Config::origin(std::string_view key) const { return known(key).origin; }
const std::string& Config::place(std::string_view key) const { return known(key).place; }

std::string Config::to_json() const {
  // Keys are grouped by what stands before the last dot; all settings have at most one level.
  std::map<std::string, std::vector<std::string>> sections;
  std::vector<std::string> order;
  std::string origins;
  for (const Setting& setting : settings_) {
    const size_t dot = setting.key.rfind('.');
    const std::string section = dot == std::string::npos ? std::string{} : setting.key.substr(0, dot);
    const std::string name = dot == std::string::npos ? setting.key : setting.key.substr(dot + 1);
    if (sections[section].empty()) order.push_back(section);
    sections[section].push_back(str(json_quote(name), ": ", trireme::to_json(known(setting.key).value)));
    origins += str(origins.empty() ? "" : ",", "\n    ", json_quote(setting.key), ": ", json_quote(place(setting.key)));
  }
  std::string body;
  for (const std::string& section : order) {
    if (!body.empty()) body += ',';
    if (section.empty()) {
      body += str("\n    ", join(sections[section], ",\n    "));
    } else {
      body += str("\n    ", json_quote(section), ": {\n      ", join(sections[section], ",\n      "), "\n    }");
    }
  }
  return str("{\n  \"schema\": 1,\n  \"config\": {", body, "\n  },\n  \"origin\": {", origins, "\n  }\n}\n");
}

}  // namespace trireme
