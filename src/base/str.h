// str(a, b, ...): one string from anything that has operator<<. Used where LibTorch is included, since the wheel brings
// an fmt of its own.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

namespace trireme {

template <typename... Parts>
[[nodiscard]] std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// "0, 1, 2" from a range.
template <typename Range>
[[nodiscard]] std::string join(const Range& range, const char* separator = ", ") {
  std::ostringstream out;
  const char* between = "";
  for (const auto& item : range) {
    out << between << item;
    between = separator;
  }
  return std::move(out).str();
}

/// "1,880", for people.
[[nodiscard]] inline std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  const size_t first_digit = number < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first_digit + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

}  // namespace trireme
