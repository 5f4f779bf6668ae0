// The last act of a program: what it printed has arrived, or its exit code says so.
#pragma once

#include <string_view>

namespace trireme {

/// Flushes standard output. Returns `code`; where what was printed could not be written (a full disk, a closed descriptor), one line goes to
/// standard error, and a `code` of 0 becomes that of kIo. [call once, at the end of main]
[[nodiscard]] int finish_output(int code, std::string_view component);

}  // namespace trireme
