#include "base/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/fd.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

/// 0, or the errno of what failed.
int write_bytes(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

int write_all(int fd, std::string_view text) {
  if (const int reason = write_bytes(fd, text); reason != 0) return reason;
  return fsync(fd) == 0 ? 0 : errno;
}

/// A device or pipe is written to, never replaced by a file: root could. What is below /dev or /proc (/dev/stdout) is one whatever it leads to.
bool is_no_plain_file(const std::string& path) {
  if (path.starts_with("/dev/") || path.starts_with("/proc/")) return true;
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

/// 0, or the errno of what failed.
int write_in_place(const std::string& path, std::string_view text) {
  // Not blocking at first: a pipe that nobody reads would keep open() waiting.
  const Fd fd(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return errno;
  if (fcntl(fd.get(), F_SETFL, O_APPEND) != 0) return errno;
  return write_bytes(fd.get(), text);
}

[[noreturn]] void refuse(const std::string& path, int reason, std::string_view component) {
  throw Error(ErrorKind::kIo, str("[", component, "] cannot write ", path, ": ",
                                  std::generic_category().message(reason), ". Check the folder and its disk."));
}

}  // namespace

void replace_file(const std::string& path, std::string_view text, std::string_view component) {
  if (path.empty()) {
    throw Error(ErrorKind::kConfig,
                str("[", component, "] the name of the file to write is empty; a path is required. Give one."));
  }
  if (is_no_plain_file(path)) {
    if (const int reason = write_in_place(path, text); reason != 0) refuse(path, reason, component);
    return;
  }
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());  // of a writer that was killed, or a link that somebody planted
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  int reason = fd < 0 ? errno : write_all(fd, text);
  if (fd >= 0) close(fd);
  if (reason == 0 && rename(fresh.c_str(), path.c_str()) != 0) reason = errno;
  if (reason != 0) {
    unlink(fresh.c_str());
    refuse(path, reason, component);
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
