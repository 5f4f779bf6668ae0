// Text from files and arguments on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// Where the first control character of `text` stands, that is one a terminal may obey: below 0x20 (line ends and tabs too), 0x7f, and the
/// second set of UTF-8 (U+0080 to U+009F). npos: none.
[[nodiscard]] size_t find_control(std::string_view text) noexcept;

/// `text` with its control characters as they are written in C: "\x1b". Line ends and tabs stay.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace trireme
