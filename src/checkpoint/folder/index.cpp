#include "checkpoint/folder/index.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "base/str.h"
#include "checkpoint/folder/files.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kSealBegin = ",\n \"xxh3_64\": \"";
constexpr std::string_view kSealEnd = "\"\n}\n";
constexpr size_t kSealBytes = kSealBegin.size() + 16 + kSealEnd.size();

std::string seal(std::string_view text) {
  return str(kSealBegin, to_hex(checksum_of(std::as_bytes(std::span(text)))), kSealEnd);
}

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::kIo,
              str("[checkpoint.load] ", path, ": ", what, ". The checkpoint is damaged or incomplete."));
}

// get<int64_t>() would round 1.5 and turn -1 around.
int64_t count_of(const nlohmann::json& json, const char* key, const std::string& path) {
  const nlohmann::json& value = json.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    damaged(path, str("its '", key, "' is ", value.dump(), " where a non-negative integer is required"));
  }
  return static_cast<int64_t>(value.get<uint64_t>());
}

bool is_name_beside(const std::string& name) {
  return !name.empty() && name[0] != '.' && name != kIndexName && std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
}

// nlohmann keeps the last of equal keys, so that a tensor could be in two files at once.
nlohmann::json parse_without_duplicates(std::string_view text, const std::string& path) {
  std::map<int, std::set<std::string>> keys;  // of the objects that are open, by depth
  const auto callback = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    // An index is three levels deep; deeper ones would be attacks on the stack.
    if (depth > 4) damaged(path, "it is nested deeper than an index can be");
    if (event == nlohmann::json::parse_event_t::object_start) keys[depth + 1].clear();
    if (event == nlohmann::json::parse_event_t::key) {
      const std::string key = parsed.get<std::string>();
      if (!keys[depth].insert(key).second) damaged(path, str("the name ", json_quote(key), " appears twice"));
    }
    return true;
  };
  return nlohmann::json::parse(text, callback);
}

Index from_json(const nlohmann::json& json, const std::string& path) {
  if (const auto& schema = json.at("schema"); schema != 1) {
    throw Error(ErrorKind::kIo, str("[checkpoint.load] ", path, ": it has schema ", schema.dump(),
                                    "; this version of Trireme reads schema 1. Use the version that wrote it."));
  }
  Index index;
  index.step = count_of(json, "step", path);
  index.weight_map = json.at("weight_map").get<std::map<std::string, std::string>>();
  index.metadata = json.at("metadata").get<std::map<std::string, std::string>>();
  for (const auto& [name, entry] : json.at("files").items()) {
    if (!is_name_beside(name)) damaged(path, str(json_quote(name), " is no name of a file beside it"));
    const auto bytes = static_cast<uint64_t>(count_of(entry, "bytes", path));
    index.files[name] = {bytes, entry.at("xxh3_64").get<std::string>()};
  }
  for (const auto& [tensor, file] : index.weight_map) {
    if (!index.files.contains(file)) {
      damaged(path, str("tensor ", json_quote(tensor), " is in ", json_quote(file), ", which is none of its files"));
    }
  }
  return index;
}

}  // namespace

std::string to_text(const Index& index) {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["step"] = index.step;
  json["weight_map"] = index.weight_map;
  auto& files = json["files"] = nlohmann::ordered_json::object();
  for (const auto& [name, entry] : index.files) files[name] = {{"bytes", entry.bytes}, {"xxh3_64", entry.checksum}};
  json["metadata"] = index.metadata;
  std::string text;
  try {
    text = json.dump(1);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kInvalidArgument,
                str("[checkpoint.save] a name or metadata is no UTF-8 (", error.what(), "); text is required."));
  }
  text.resize(text.size() - 2);  // "\n}"
  text += seal(text);
  if (text.size() > kMaxIndexBytes) {
    throw Error(ErrorKind::kInvalidArgument,
                str("[checkpoint.save] an index of ", text.size(), " bytes would be needed; ", kMaxIndexBytes,
                    " are possible. Put less into the metadata."));
  }
  return text;
}

Index parse_index(std::string_view text, const std::string& path) {
  if (text.size() <= kSealBytes || !text.ends_with(kSealEnd)) {
    damaged(path, str("its ", text.size(), " bytes do not end with a checksum, so it was cut off or changed"));
  }
  const std::string_view body = text.substr(0, text.size() - kSealBytes);
  if (text.substr(body.size()) != seal(body)) damaged(path, "it does not have the checksum in its last line");
  try {
    return from_json(parse_without_duplicates(text, path), path);
  } catch (const nlohmann::json::exception& error) {
    damaged(path, str("it is no index of a checkpoint (", error.what(), ")"));
  }
}

std::optional<int64_t> step_of(std::string_view folder_name) noexcept {
  if (!folder_name.starts_with(kStepPrefix)) return std::nullopt;
  const std::string_view digits = folder_name.substr(kStepPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  // One name per step: "step-007" is somebody else's.
  if (step < 0 || std::to_string(step) != digits) return std::nullopt;
  return step;
}

}  // namespace trireme::checkpoint
