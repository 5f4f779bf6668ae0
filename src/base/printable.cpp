#include "base/printable.h"

namespace trireme {
namespace {

/// Bytes of the control character at `at`; 0 where there is none.
size_t control_bytes(std::string_view text, size_t at) noexcept {
  const auto c = static_cast<unsigned char>(text[at]);
  if (c < 0x20 || c == 0x7f) return 1;
  if (c != 0xc2 || at + 1 >= text.size()) return 0;
  const auto next = static_cast<unsigned char>(text[at + 1]);
  return next >= 0x80 && next <= 0x9f ? 2 : 0;
}

}  // namespace

size_t find_control(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size(); ++i) {
    if (control_bytes(text, i) > 0) return i;
  }
  return std::string_view::npos;
}

std::string printable(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t bytes = control_bytes(text, i);
    if (bytes == 0 || text[i] == '\n' || text[i] == '\t') {
      out += text[i++];
      continue;
    }
    for (; bytes > 0; --bytes, ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      out += "\\x";
      out += kDigits[c >> 4];
      out += kDigits[c & 15];
    }
  }
  return out;
}

}  // namespace trireme
