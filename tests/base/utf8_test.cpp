// Oracle: the encoder of pickle_text, for every code point there is; and RFC 3629's list of what is no character.
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

#include "base/pickle_text.h"

namespace trireme {
namespace {

TEST(Utf8, ReadsBackEveryCodePointAndNoPartOfOne) {
  for (uint32_t code = 0; code <= 0x10FFFF; ++code) {
    std::string text;
    pickle::append_utf8(text, code);
    const Utf8Character character = first_utf8_character(text + "x");
    if (code >= 0xD800 && code <= 0xDFFF) {
      ASSERT_EQ(character.bytes, 0U) << code;
      continue;
    }
    ASSERT_EQ(character.bytes, text.size()) << code;
    ASSERT_EQ(character.code, code);
    for (size_t size = 1; size < text.size(); ++size)
      ASSERT_EQ(first_utf8_character(text.substr(0, size)).bytes, 0U) << code;
  }
}

TEST(Utf8, RefusesWhatIsNoCharacter) {
  for (const char* text : {"\x80", "\xbf", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xfe", "\xff", "\xe2\x28\xa1", "\xc3\xc3"}) {
    EXPECT_EQ(first_utf8_character(text).bytes, 0U) << text;
  }
}

}  // namespace
}  // namespace trireme
