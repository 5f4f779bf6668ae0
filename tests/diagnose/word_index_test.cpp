#include "diagnose/word_index.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace trireme::diagnose {
namespace {

// Oracle: std::string_view::find for each word, on random texts over few letters, so that words overlap and nearly match.
TEST(WordIndex, FindsWhatFindFinds) {
  std::mt19937 random(3);
  const auto text = [&](size_t most, size_t least) {
    std::string made;
    for (size_t i = random() % (most - least + 1) + least; i > 0; --i) made += "ab\xff"[random() % 3];
    return made;
  };
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<std::string> words;
    for (int i = 0; i < 6; ++i) words.push_back(text(5, 2));
    WordIndex index;
    for (size_t i = 0; i < words.size(); ++i) index.add(words[i], static_cast<unsigned>(i * 12));
    const std::string line = text(30, 0);
    uint64_t want = 0;
    for (size_t i = 0; i < words.size(); ++i)
      want |= static_cast<uint64_t>(line.find(words[i]) != std::string::npos) << (i * 12);
    ASSERT_EQ(index.owners_in(line, ~uint64_t{0}), want) << line;
    // Told to look for one owner only, it stops early and has that one.
    ASSERT_EQ(index.owners_in(line, 1) & 1, want & 1) << line;
  }
}

}  // namespace
}  // namespace trireme::diagnose
