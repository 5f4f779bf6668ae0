#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/fd.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

std::string read_file(const std::string& path, std::string_view component, std::string_view required, size_t most) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kIo, str("[", component, "] cannot read '", path, "': ", why, "; ", required,
                                    " is required. Check the path."));
  };
  // Not blocking: a pipe without a writer would keep open() waiting.
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) refuse(std::generic_category().message(errno));
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) refuse(std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode)) refuse(str("it is ", kind_of(status.st_mode)));
  const auto size = static_cast<size_t>(std::max<off_t>(status.st_size, 0));
  if (size > most) refuse(str("it is longer than ", most, " bytes"));
  // The size is a hint only: files below /proc say 0, and others grow.
  std::string text;
  size_t used = 0;
  text.resize(size + 1);
  for (;;) {
    const ssize_t got = read(fd.get(), text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(std::generic_category().message(errno));
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (used > most) refuse(str("it is longer than ", most, " bytes"));
    if (used == text.size()) text.resize(std::min(most + 1, 2 * used + 4096));
  }
  text.resize(used);
  return text;
}

}  // namespace trireme
