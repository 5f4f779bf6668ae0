// A JSON object of a planner's input file, read key by key, so that every error names the file, the key and what to do.
//
// The parser is nlohmann's; only json_object.cpp includes it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

/// All of a file. kIo, with `component`, when it cannot be read.
[[nodiscard]] std::string read_text(const std::string& path, const std::string& component);

/// Purpose     typed access to one object; a copy is cheap and keeps the whole file's text alive.
/// Invariants  a key that is present with null counts as absent, as Hugging Face's own reader has it.
/// Errors      every member throws kConfig: `[component] file: key 'a.b' is ...; ... is required. ...`.
class JsonObject {
 public:
  /// Parses `text`; `file` and `component` ("plan.hf_import") begin every message. Comments are allowed, a key twice in one object is not.
  static JsonObject parse(std::string_view text, const std::string& file, const std::string& component);
  /// Reads the file, too. kIo when it cannot be read.
  static JsonObject read(const std::string& path, const std::string& component);

  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] std::vector<std::string> keys() const;

  /// A whole number (2048.0 counts as one) within [min, max].
  [[nodiscard]] int64_t integer(std::string_view key, int64_t min = 1,
                                int64_t max = std::numeric_limits<int64_t>::max()) const;
  [[nodiscard]] int64_t integer_or(std::string_view key, int64_t otherwise, int64_t min = 0,
                                   int64_t max = std::numeric_limits<int64_t>::max()) const;
  [[nodiscard]] double number(std::string_view key) const;
  [[nodiscard]] double number_or(std::string_view key, double otherwise) const;
  [[nodiscard]] bool boolean(std::string_view key) const;
  [[nodiscard]] bool boolean_or(std::string_view key, bool otherwise) const;
  /// Without control characters, as all texts here.
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::string text_or(std::string_view key, std::string_view otherwise) const;

  [[nodiscard]] JsonObject object(std::string_view key) const;
  [[nodiscard]] std::vector<JsonObject> objects(
      std::string_view key) const;                                           ///< an array of objects; empty when absent
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;  ///< an array of strings; empty when absent
  [[nodiscard]] std::vector<int64_t> integers(std::string_view key) const;   ///< an array of whole numbers
  [[nodiscard]] bool is_object(std::string_view key) const;
  [[nodiscard]] bool is_number(std::string_view key) const;

  /// Refuses every key that is not in `known`, with the nearest that is. Keys that begin with '_' are remarks.
  void refuse_unknown_keys(const std::vector<std::string>& known) const;

  /// "[component] file: key 'a.b' " for a message of the caller's own; without key "[component] file: ".
  [[nodiscard]] std::string place(std::string_view key = {}) const;
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

  [[nodiscard]] const std::string& file() const;

 private:
  struct Document;
  JsonObject(std::shared_ptr<const Document> document, const void* node, std::string path);
  [[nodiscard]] const void* find(std::string_view key) const;     // nullptr when absent or null
  [[nodiscard]] const void* require(std::string_view key) const;  // throws when absent
  [[nodiscard]] std::string path_of(std::string_view key) const;
  [[nodiscard]] std::string printable_text(std::string_view key, std::string text) const;

  std::shared_ptr<const Document> document_;
  const void* node_;  // a nlohmann::json inside document_
  std::string path_;
};

}  // namespace trireme::plan
