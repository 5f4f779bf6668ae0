#include "base/finish_output.h"

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include "trireme/base/error.h"

namespace trireme {

int finish_output(int code, std::string_view component) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int reason = errno;
  if (flushed && std::ferror(stdout) == 0) return code;
  // An earlier write that failed has left its mark, but not its reason.
  const std::string why = flushed || reason == 0 ? "a write failed" : std::generic_category().message(reason);
  std::fprintf(stderr,
               "[%.*s] standard output was lost: %s; a file, pipe or terminal that takes all of it is required. Free "
               "some space or write elsewhere, and run it again.\n",
               static_cast<int>(component.size()), component.data(), why.c_str());
  return code == 0 ? exit_code(ErrorKind::kIo) : code;
}

}  // namespace trireme
