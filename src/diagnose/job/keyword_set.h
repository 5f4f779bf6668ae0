// Which of some hundred words a line holds, in one pass over its bytes. Whether it holds any is WordIndex's quicker question.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme::diagnose {

/// Purpose  The automaton of Aho and Corasick ("Efficient string matching", CACM 18, 1975) with all transitions worked out.
/// Cost     about 1 ns a byte; 512 bytes a state, one state for each letter that begins a word anew.
class KeywordSet {
 public:
  /// Up to 65,535 letters in all. Word i is reported as bit i % 64 of element i / 64.
  explicit KeywordSet(const std::vector<std::string_view>& words);

  static constexpr size_t kMostWords = 256;
  using Found = std::array<uint64_t, kMostWords / 64>;

  /// All words that occur in `text`.
  [[nodiscard]] Found find(std::string_view text) const;

  [[nodiscard]] static bool any(const Found& found) {
    uint64_t all = 0;
    for (const uint64_t part : found) all |= part;
    return all != 0;
  }
  [[nodiscard]] static bool has(const Found& found, size_t word) { return (found[word / 64] >> (word % 64) & 1) != 0; }

 private:
  using Row = std::array<uint16_t, 256>;
  std::vector<Row> next_;
  std::vector<Found> ends_;  ///< of a state: the words that end there
  std::vector<uint8_t> is_end_;
};

}  // namespace trireme::diagnose
