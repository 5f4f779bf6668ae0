// JSON as our own files use it: objects of scalars, read with the line of every key, so that an error can point at it.
//
// The parser is nlohmann's; this is the only part of it that other headers need to see.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trireme {

using JsonScalar = std::variant<bool, int64_t, double, std::string>;

struct FlatJsonEntry {
  std::string key;  ///< nested keys joined by dots: "optim.learning_rate"
  JsonScalar value;
  int line = 0;  ///< of the key, from 1
};

/// Reads an object of objects of scalars. `//` and `/* */` comments are allowed.
///
/// Errors   kConfig with `file:line`: not JSON; a key twice; an array, null, or something other than an object on top.
[[nodiscard]] std::vector<FlatJsonEntry> parse_flat_json(std::string_view text, std::string_view file);

/// "text" with quotes and escapes, as JSON wants it. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_quote(std::string_view text);

/// A number as JSON, shortest text that reads back as the same double; nan and infinities, which JSON lacks, are null.
[[nodiscard]] std::string json_number(double value);

/// The scalar as JSON.
[[nodiscard]] std::string to_json(const JsonScalar& value);

}  // namespace trireme
