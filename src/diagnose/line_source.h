// Lines of a file of any size, in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace trireme::diagnose {

struct Line {
  std::string_view
      text;  ///< without its end; may hold NUL bytes and bytes that are not UTF-8; terminal escapes are removed
  int64_t number = 0;  ///< from 1, as editors count: at "\n"
  bool cut = false;    ///< only the first kLongestLine bytes are here
};

/// No more of a line is kept; what follows in it is skipped.
inline constexpr size_t kLongestLine = size_t{64} << 10;

struct LinesRead {
  int64_t lines = 0;
  int64_t bytes = 0;
  int64_t cut_lines = 0;
  bool ends_in_line = false;  ///< the last line has no end: the file may have been cut
};

/// Calls `each` with every line of what `fd` gives until its end. "\n" and "\r\n" end a line; a lone "\r" ends a piece of one (progress bars
/// rewrite theirs), whose number stays. `each` returns false to stop. `head` are bytes that were read from `fd` already.
///
/// Cost     one pass in blocks of 256 KiB; about 1 s for 1 GiB besides what `each` does.
/// Errors   kIo: reading failed; the message has the kernel's word.
LinesRead read_lines(int fd, const std::string& name, const std::function<bool(const Line&)>& each,
                     std::string_view head = {});

/// The same for text in memory.
LinesRead split_lines(std::string_view text, const std::function<bool(const Line&)>& each);

}  // namespace trireme::diagnose
