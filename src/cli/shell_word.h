// Words as a shell reads them, for commands that a user may paste.
#pragma once

#include <string>

namespace trireme::cli {

/// The word as it is where a shell would leave it alone, else in single quotes.
[[nodiscard]] inline std::string shell_word(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n\"'\\$`!*?[]{}()<>|&;#~") == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace trireme::cli
