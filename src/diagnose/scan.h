// Small words for readers of text: they look for a marker and take what stands after it. Nothing here throws.
#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace trireme::diagnose {

[[nodiscard]] inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// What follows the first `marker`; nullopt when it is not there.
[[nodiscard]] inline std::optional<std::string_view> after(std::string_view text, std::string_view marker) {
  const size_t at = text.find(marker);
  if (at == std::string_view::npos) return std::nullopt;
  return text.substr(at + marker.size());
}

/// Until the first of `ends`, or all.
[[nodiscard]] inline std::string_view until(std::string_view text, std::string_view ends) {
  return text.substr(0, text.find_first_of(ends));
}

/// The text between two markers; nullopt when one is missing.
[[nodiscard]] inline std::optional<std::string_view> between(std::string_view text, std::string_view left,
                                                             std::string_view right) {
  const std::optional<std::string_view> rest = after(text, left);
  if (!rest) return std::nullopt;
  const size_t end = rest->find(right);
  if (end == std::string_view::npos) return std::nullopt;
  return rest->substr(0, end);
}

/// The number that the text begins with (blanks before it are passed over); nullopt without one or when it does not fit.
template <typename T = int64_t>
[[nodiscard]] std::optional<T> leading_number(std::string_view text) {
  text = trimmed(text);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

/// The same, and the whole text must be the number.
[[nodiscard]] inline std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

[[nodiscard]] inline bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Words between blanks and tabs, at most `most` of them.
[[nodiscard]] inline std::vector<std::string_view> words(std::string_view text, size_t most = 4096) {
  std::vector<std::string_view> found;
  constexpr std::string_view kBlank = " \t\v\f\r\n";
  for (size_t at = text.find_first_not_of(kBlank); at != std::string_view::npos && found.size() < most;) {
    const size_t end = text.find_first_of(kBlank, at);
    found.push_back(text.substr(at, end == std::string_view::npos ? end : end - at));
    at = end == std::string_view::npos ? end : text.find_first_not_of(kBlank, end);
  }
  return found;
}

}  // namespace trireme::diagnose
