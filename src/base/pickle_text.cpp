#include "base/pickle_text.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trireme::pickle {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// `count` digits of `base` at `at`; -1 when there are fewer.
int64_t number_at(std::string_view text, size_t at, size_t count, int base) {
  if (at + count > text.size()) return -1;
  int64_t value = 0;
  for (size_t i = at; i < at + count; ++i) {
    const int digit = digit_of(text[i]);
    if (digit < 0 || digit >= base) return -1;
    value = value * base + digit;
  }
  return value;
}

/// The escape after a backslash at `at` - 1, moving `at` behind it. False: cut off.
bool append_escape(std::string& out, std::string_view text, size_t& at) {
  if (at >= text.size()) return false;
  const char c = text[at++];
  constexpr std::string_view kNames = "abfnrtv\\'\"";
  constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  if (const size_t known = kNames.find(c); known != std::string_view::npos) {
    out += kMeanings[known];
  } else if (c == 'x') {
    const int64_t code = number_at(text, at, 2, 16);
    if (code < 0) return false;
    out += static_cast<char>(code);
    at += 2;
  } else if (c >= '0' && c <= '7') {
    size_t count = 1;
    while (count < 3 && at - 1 + count < text.size() && text[at - 1 + count] >= '0' && text[at - 1 + count] <= '7')
      ++count;
    out += static_cast<char>(number_at(text, at - 1, count, 8));
    at += count - 1;
  } else {
    out += '\\';
    out += c;
  }
  return true;
}

}  // namespace

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

std::optional<std::string> unquote(std::string_view literal) {
  if (literal.size() < 2 || (literal.front() != '\'' && literal.front() != '"') || literal.back() != literal.front())
    return {};
  const std::string_view text = literal.substr(1, literal.size() - 2);
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char c = text[at++];
    if (c != '\\') {
      out += c;
    } else if (!append_escape(out, text, at)) {
      return {};
    }
  }
  return out;
}

std::optional<std::string> decode_raw_unicode(std::string_view literal) {
  constexpr int64_t kLastCodePoint = 0x10ffff;
  std::string out;
  out.reserve(literal.size());
  for (size_t at = 0; at < literal.size();) {
    const char c = literal[at];
    const char next = at + 1 < literal.size() ? literal[at + 1] : '\0';
    if (c == '\\' && (next == 'u' || next == 'U')) {
      const size_t digits = next == 'u' ? 4 : 8;
      const int64_t code = number_at(literal, at + 2, digits, 16);
      if (code < 0 || code > kLastCodePoint) return {};
      append_utf8(out, static_cast<uint32_t>(code));
      at += 2 + digits;
    } else {
      append_utf8(out, static_cast<unsigned char>(c));
      ++at;
    }
  }
  return out;
}

std::optional<std::string> long_bytes(std::string_view decimal) {
  constexpr size_t kMaxDigits = 4300;
  const bool negative = decimal.starts_with('-');
  if (negative || decimal.starts_with('+')) decimal.remove_prefix(1);
  if (decimal.empty() || decimal.size() > kMaxDigits) return {};
  std::vector<uint8_t> bytes;  // magnitude, least significant first
  for (const char c : decimal) {
    if (c < '0' || c > '9') return {};
    unsigned carry = static_cast<unsigned>(c - '0');
    for (uint8_t& byte : bytes) {
      carry += byte * 10U;
      byte = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
    if (carry != 0) bytes.push_back(static_cast<uint8_t>(carry));
  }
  bytes.push_back(0);  // room for the sign
  if (negative) {
    unsigned carry = 1;
    for (uint8_t& byte : bytes) {
      carry += static_cast<uint8_t>(~byte);
      byte = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
  }
  const auto spare = [&bytes] {
    if (bytes.empty()) return false;
    const bool high = bytes.size() > 1 && (bytes[bytes.size() - 2] & 0x80U) != 0;
    return (bytes.back() == 0 && !high) || (bytes.back() == 0xff && high);
  };
  while (spare()) bytes.pop_back();
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace trireme::pickle
