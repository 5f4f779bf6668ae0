// UTF-8 as RFC 3629 has it: what files and arguments hold may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

/// A character and how many bytes it takes.
struct Utf8Character {
  size_t bytes = 0;  ///< 0: no character begins here (cut off, overlong, a surrogate, above U+10FFFF)
  uint32_t code = 0;
};

/// The character with which `text` begins; `text` is not empty.
[[nodiscard]] Utf8Character first_utf8_character(std::string_view text) noexcept;

}  // namespace trireme
