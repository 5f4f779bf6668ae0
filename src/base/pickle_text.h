// The literals of pickle protocol 0, which are text. Private to the pickle reader.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::pickle {

/// What S holds: a quoted string of Python 2 with its escapes. Nothing when it is not quoted or an escape is cut off.
[[nodiscard]] std::optional<std::string> unquote(std::string_view literal);

/// What V holds: raw-unicode-escape, so Latin-1 bytes and \uXXXX, \UXXXXXXXX; as UTF-8. Nothing for a bad escape.
[[nodiscard]] std::optional<std::string> decode_raw_unicode(std::string_view literal);

/// A decimal integer of any length as little-endian two's complement without spare bytes, which is what LONG1 holds. Nothing when it is
/// no number or longer than 4,300 digits, where Python stops too.
[[nodiscard]] std::optional<std::string> long_bytes(std::string_view decimal);

/// The UTF-8 of a code point; surrogates pass, as they do in Python's pickles.
void append_utf8(std::string& out, uint32_t code);

}  // namespace trireme::pickle
