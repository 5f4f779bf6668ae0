#include "base/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

/// 0, or the errno of what failed.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? 0 : errno;
}

}  // namespace

void replace_file(const std::string& path, std::string_view text, std::string_view component) {
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());  // of a writer that was killed, or a link that somebody planted
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  int reason = fd < 0 ? errno : write_all(fd, text);
  if (fd >= 0) close(fd);
  if (reason == 0 && rename(fresh.c_str(), path.c_str()) != 0) reason = errno;
  if (reason != 0) {
    unlink(fresh.c_str());
    throw Error(ErrorKind::kIo, str("[", component, "] cannot write ", path, ": ",
                                    std::generic_category().message(reason), ". Check the folder and its disk."));
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int folder_fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // The file is there; only its name may be lost with the power, and not every file system can say more.
  if (folder_fd >= 0) {
    (void)fsync(folder_fd);
    close(folder_fd);
  }
}

}  // namespace trireme
