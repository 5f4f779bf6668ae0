#include "diagnose/word_index.h"

#include "trireme/base/error.h"

namespace trireme::diagnose {

void WordIndex::add(std::string_view word, unsigned owner) {
  TRIREME_CHECK(word.size() >= 2 && owner < 64, "a word of a reader is too short, or there are too many readers");
  uint8_t& bucket = bucket_[key(word[0], word[1])];
  if (bucket == 0) {
    TRIREME_CHECK(buckets_.size() < 256, "words of readers begin in too many ways");
    bucket = static_cast<uint8_t>(buckets_.size());
    buckets_.emplace_back();
  }
  buckets_[bucket].push_back({word, uint64_t{1} << owner});
}

uint64_t WordIndex::owners_in(std::string_view text, uint64_t wanted) const {
  uint64_t found = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const uint8_t bucket = bucket_[key(text[i], text[i + 1])];
    if (bucket == 0) [[likely]]
      continue;
    const std::string_view rest = text.substr(i);
    for (const Word& word : buckets_[bucket]) {
      if ((found & word.owner) == 0 && rest.starts_with(word.text)) found |= word.owner;
    }
    if ((found & wanted) == wanted) break;
  }
  return found;
}

}  // namespace trireme::diagnose
