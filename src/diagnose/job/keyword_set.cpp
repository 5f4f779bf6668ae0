#include "diagnose/job/keyword_set.h"

#include <deque>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::diagnose {

KeywordSet::KeywordSet(const std::vector<std::string_view>& words) {
  TRIREME_CHECK(words.size() <= kMostWords, str(words.size(), " words"));
  next_.emplace_back();
  ends_.emplace_back();
  for (size_t i = 0; i < words.size(); ++i) {
    uint16_t state = 0;
    for (const char c : words[i]) {
      const auto letter = static_cast<unsigned char>(c);
      if (next_[state][letter] == 0) {
        TRIREME_CHECK(next_.size() < UINT16_MAX, "too many letters");
        next_[state][letter] = static_cast<uint16_t>(next_.size());
        next_.emplace_back();
        ends_.emplace_back();
      }
      state = next_[state][letter];
    }
    ends_[state][i / 64] |= uint64_t{1} << (i % 64);
  }
  // Breadth first: where a state has no way on, that of its longest proper suffix is taken.
  std::vector<uint16_t> suffix(next_.size(), 0);
  std::deque<uint16_t> queue;
  for (const uint16_t child : next_[0]) {
    if (child != 0) queue.push_back(child);
  }
  while (!queue.empty()) {
    const uint16_t state = queue.front();
    queue.pop_front();
    const uint16_t shorter = suffix[state];
    for (size_t part = 0; part < ends_[state].size(); ++part) ends_[state][part] |= ends_[shorter][part];
    for (size_t letter = 0; letter < 256; ++letter) {
      const uint16_t child = next_[state][letter];
      if (child != 0) {
        suffix[child] = next_[shorter][letter];
        queue.push_back(child);
      } else {
        next_[state][letter] = next_[shorter][letter];
      }
    }
  }
  for (const Found& end : ends_) is_end_.push_back(any(end) ? 1 : 0);
}

KeywordSet::Found KeywordSet::find(std::string_view text) const {
  Found found{};
  uint16_t state = 0;
  for (const char c : text) {
    state = next_[state][static_cast<unsigned char>(c)];
    if (is_end_[state] != 0) [[unlikely]] {
      for (size_t part = 0; part < found.size(); ++part) found[part] |= ends_[state][part];
    }
  }
  return found;
}

}  // namespace trireme::diagnose
