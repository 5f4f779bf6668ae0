#include "plan/json_object.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/nearest.h"
#include "base/printable.h"
#include "base/read_file.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::plan {

using nlohmann::json;

struct JsonObject::Document {
  json root;
  std::string file;
  std::string component;
};

std::string read_text(const std::string& path, const std::string& component) {
  constexpr size_t kMost = size_t{64} << 20;
  return read_file(path, component, "a JSON file that this user may read", kMost);
}

namespace {

const json& as_json(const void* node) { return *static_cast<const json*>(node); }

/// The value as a message shows it, cut where it is long.
std::string shown(const json& value) {
  std::string text = value.dump();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

JsonObject::JsonObject(std::shared_ptr<const Document> document, const void* node, std::string path)
    : document_(std::move(document)), node_(node), path_(std::move(path)) {}

JsonObject JsonObject::parse(std::string_view text, const std::string& file, const std::string& component) {
  auto document = std::make_shared<Document>();
  document->file = file;
  document->component = component;
  const std::string start = str("[", component, "] ", file, ": ");
  std::vector<std::set<std::string>> seen;
  std::string twice;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end) seen.pop_back();
    if (event == json::parse_event_t::key && !seen.back().insert(parsed.get<std::string>()).second && twice.empty())
      twice = parsed.get<std::string>();
    return true;
  };
  try {
    document->root = json::parse(text.begin(), text.end(), watch, true, true);
  } catch (const json::exception& error) {
    throw Error(ErrorKind::kConfig, str(start, "not JSON: ", error.what(), ". Correct the file."));
  }
  if (!twice.empty()) {
    throw Error(ErrorKind::kConfig,
                str(start, "key '", twice, "' stands twice in one object; each may once. Remove one of them."));
  }
  if (!document->root.is_object()) {
    throw Error(ErrorKind::kConfig, str(start, "holds ", document->root.type_name(),
                                        " on top; an object {...} is required. Give the right file."));
  }
  const void* node = &document->root;
  return {std::move(document), node, ""};
}

JsonObject JsonObject::read(const std::string& path, const std::string& component) {
  return parse(read_text(path, component), path, component);
}

std::string JsonObject::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : str(path_, ".", key);
}

std::string JsonObject::place(std::string_view key) const {
  const std::string start = str("[", document_->component, "] ", document_->file, ": ");
  if (!key.empty()) return str(start, "key '", path_of(key), "' ");
  return path_.empty() ? start : str(start, "'", path_, "' ");
}

void JsonObject::fail(std::string_view key, const std::string& what) const {
  throw Error(ErrorKind::kConfig, place(key) + what);
}

const std::string& JsonObject::file() const { return document_->file; }

const void* JsonObject::find(std::string_view key) const {
  const json& node = as_json(node_);
  const auto found = node.find(std::string(key));
  return found == node.end() || found->is_null() ? nullptr : &*found;
}

const void* JsonObject::require(std::string_view key) const {
  const void* found = find(key);
  if (found == nullptr) fail(key, str("is missing", did_you_mean(key, keys()), ". Add it to the file."));
  return found;
}

bool JsonObject::has(std::string_view key) const { return find(key) != nullptr; }

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> result;
  for (const auto& item : as_json(node_).items()) result.push_back(item.key());
  return result;
}

int64_t JsonObject::integer(std::string_view key, int64_t min, int64_t max) const {
  const json& value = as_json(require(key));
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  // Beyond 2^53 a double no longer tells neighbours apart; nothing here counts that far.
  if (!(std::floor(number) == number && std::abs(number) < 9e15)) {
    fail(key, str("is ", shown(value), "; a whole number is required. Correct it."));
  }
  const auto whole = static_cast<int64_t>(number);
  if (whole < min || whole > max) {
    const std::string bounds =
        max == std::numeric_limits<int64_t>::max() ? str("at least ", min) : str("from ", min, " to ", max);
    fail(key, str("is ", whole, "; ", bounds, " is required. Correct it."));
  }
  return whole;
}

int64_t JsonObject::integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const {
  return has(key) ? integer(key, min, max) : otherwise;
}

double JsonObject::number(std::string_view key) const {
  const json& value = as_json(require(key));
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    fail(key, str("is ", shown(value), "; a number is required. Correct it."));
  return value.get<double>();
}

double JsonObject::number_or(std::string_view key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

bool JsonObject::boolean(std::string_view key) const {
  const json& value = as_json(require(key));
  if (!value.is_boolean()) fail(key, str("is ", shown(value), "; true or false is required. Correct it."));
  return value.get<bool>();
}

bool JsonObject::boolean_or(std::string_view key, bool otherwise) const { return has(key) ? boolean(key) : otherwise; }

std::string JsonObject::printable_text(std::string_view key, std::string text) const {
  // Names go to terminals, which obey what looks like a command of theirs.
  if (const size_t at = find_control(text); at != std::string::npos)
    fail(key, str("has a control character at position ", at, "; printable text is required. Take it out."));
  return text;
}

std::string JsonObject::text(std::string_view key) const {
  const json& value = as_json(require(key));
  if (!value.is_string()) fail(key, str("is ", shown(value), "; a text in quotes is required. Correct it."));
  return printable_text(key, value.get<std::string>());
}

std::string JsonObject::text_or(std::string_view key, std::string_view otherwise) const {
  return has(key) ? text(key) : std::string(otherwise);
}

JsonObject JsonObject::object(std::string_view key) const {
  const json& value = as_json(require(key));
  if (!value.is_object()) fail(key, str("is ", shown(value), "; an object {...} is required. Correct it."));
  return {document_, &value, path_of(key)};
}

std::vector<JsonObject> JsonObject::objects(std::string_view key) const {
  std::vector<JsonObject> result;
  if (!has(key)) return result;
  const json& value = as_json(require(key));
  if (!value.is_array()) fail(key, str("is ", shown(value), "; a list [...] of objects is required. Correct it."));
  for (size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_object())
      fail(str(key, ".", i), str("is ", shown(value[i]), "; an object {...} is required. Correct it."));
    result.push_back(JsonObject(document_, &value[i], path_of(str(key, ".", i))));
  }
  return result;
}

std::vector<std::string> JsonObject::texts(std::string_view key) const {
  std::vector<std::string> result;
  if (!has(key)) return result;
  const json& value = as_json(require(key));
  if (!value.is_array()) fail(key, str("is ", shown(value), "; a list [...] of texts is required. Correct it."));
  for (size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_string())
      fail(str(key, ".", i), str("is ", shown(value[i]), "; a text in quotes is required. Correct it."));
    result.push_back(printable_text(str(key, ".", i), value[i].get<std::string>()));
  }
  return result;
}

std::vector<int64_t> JsonObject::integers(std::string_view key) const {
  const json& value = as_json(require(key));
  if (!value.is_array())
    fail(key, str("is ", shown(value), "; a list [...] of whole numbers is required. Correct it."));
  std::vector<int64_t> result;
  for (size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_number_integer())
      fail(str(key, ".", i), str("is ", shown(value[i]), "; a whole number is required. Correct it."));
    result.push_back(value[i].get<int64_t>());
  }
  return result;
}

bool JsonObject::is_object(std::string_view key) const { return has(key) && as_json(find(key)).is_object(); }
bool JsonObject::is_number(std::string_view key) const { return has(key) && as_json(find(key)).is_number(); }

void JsonObject::refuse_unknown_keys(const std::vector<std::string>& known) const {
  for (const std::string& key : keys()) {
    if (key.starts_with('_') || std::ranges::find(known, key) != known.end()) continue;
    fail(key, str("is not known here", did_you_mean(key, known), ". Remove or correct it."));
  }
}

}  // namespace trireme::plan
