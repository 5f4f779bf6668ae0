#include "diagnose/printable.h"

#include <cstdint>

namespace trireme::diagnose {
namespace {

unsigned char at(std::string_view text, size_t index) { return static_cast<unsigned char>(text[index]); }

/// Bytes of the UTF-8 character that starts here; 0 when there is none (truncated, overlong, surrogate, above U+10FFFF), or when it is a control
/// character of the second set (U+0080 to U+009F), which terminals obey too.
size_t character(std::string_view text, size_t index) {
  const unsigned char first = at(text, index);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || index + size > text.size()) return 0;
  uint32_t code = first & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((at(text, index + i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (at(text, index + i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0xA0, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  const bool direction =
      (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);  // would reorder what is shown
  return code < kSmallest[size] || code > 0x10FFFF || surrogate || direction ? 0 : size;
}

}  // namespace

std::string printable(std::string_view text, size_t most) {
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
