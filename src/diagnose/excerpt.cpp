#include "diagnose/excerpt.h"

#include "base/utf8.h"

namespace trireme::diagnose {
namespace {

unsigned char at(std::string_view text, size_t index) { return static_cast<unsigned char>(text[index]); }

/// Bytes of the character that starts here; 0 when there is none, or one that a terminal would obey (U+0080 to U+009F) or that would reorder
/// what is shown.
size_t character(std::string_view text, size_t index) {
  const auto [bytes, code] = first_utf8_character(text.substr(index));
  const bool control = code >= 0x80 && code <= 0x9F;
  const bool direction = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return control || direction ? 0 : bytes;
}

}  // namespace

std::string excerpt(std::string_view text, size_t most) {
  std::string out;
  out.reserve(text.size() < most ? text.size() : most + 3);
  for (size_t i = 0; i < text.size();) {
    const size_t size = character(text, i);
    if (out.size() + (size == 0 ? 1 : size) > most) return out + "...";
    if (size == 1) {
      const unsigned char byte = at(text, i);
      out += byte == '\t' ? ' ' : byte < 0x20 || byte == 0x7F ? '?' : text[i];
    } else if (size == 0) {
      out += '?';
    } else {
      out += text.substr(i, size);
    }
    i += size == 0 ? 1 : size;
  }
  return out;
}

std::string without_escapes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      out += text[i];
      continue;
    }
    // ESC [ parameters, ended by a byte of 0x40 to 0x7E; any other escape is taken for two bytes.
    if (i + 1 < text.size() && text[i + 1] == '[') {
      i += 2;
      while (i < text.size() && (at(text, i) < 0x40 || at(text, i) > 0x7E)) ++i;
    } else {
      ++i;
    }
  }
  return out;
}

}  // namespace trireme::diagnose
