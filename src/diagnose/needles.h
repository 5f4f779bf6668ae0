// Does a line hold any of these words? One pass, however many words: for the lines of logs of gigabytes, of which nearly none matters.
#pragma once

#include <bitset>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace trireme::diagnose {

/// Invariants  every word has at least two bytes.
class Needles {
 public:
  Needles(std::initializer_list<std::string_view> words) : words_(words) {
    for (const std::string_view word : words_) starts_.set(key(word[0], word[1]));
  }

  [[nodiscard]] bool in(std::string_view text) const {
    for (size_t i = 0; i + 1 < text.size(); ++i) {
      if (!starts_.test(key(text[i], text[i + 1]))) [[likely]]
        continue;
      const std::string_view rest = text.substr(i);
      for (const std::string_view word : words_) {
        if (rest.starts_with(word)) return true;
      }
    }
    return false;
  }

 private:
  static size_t key(char a, char b) {
    return static_cast<size_t>(static_cast<unsigned char>(a)) << 8 | static_cast<unsigned char>(b);
  }

  std::vector<std::string_view> words_;  ///< literals, which live for ever
  std::bitset<65536> starts_;
};

}  // namespace trireme::diagnose
