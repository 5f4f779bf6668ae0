// Which readers care for a line? One pass over it, however many words they have: for the lines of logs of gigabytes, of which nearly none matters.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace trireme::diagnose {

/// Purpose     Finds words of any of up to 64 owners in a text.
/// Invariants  Every word has at least two bytes and outlives the index.
class WordIndex {
 public:
  void add(std::string_view word, unsigned owner);

  /// Bit i: a word of owner i is in the text. Stops early when all owners of `wanted` have been found.
  [[nodiscard]] uint64_t owners_in(std::string_view text, uint64_t wanted) const;

 private:
  struct Word {
    std::string_view text;
    uint64_t owner;
  };
  static size_t key(char a, char b) {
    return static_cast<size_t>(static_cast<unsigned char>(a)) << 8 | static_cast<unsigned char>(b);
  }

  /// Number of the bucket for each pair of bytes that a word may begin with; 0: none begins so.
  std::array<uint8_t, 65536> bucket_{};
  std::vector<std::vector<Word>> buckets_ = std::vector<std::vector<Word>>(1);
};

}  // namespace trireme::diagnose
