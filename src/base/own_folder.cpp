#include "base/own_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/str.h"

namespace trireme {

std::string own_tmp_folder() { return str("/tmp/trireme-", getuid()); }

std::string make_own_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return std::generic_category().message(errno);
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != getuid() ||
      (info.st_mode & 0022) != 0) {
    return "is no folder that only this user may write";
  }
  return {};
}

}  // namespace trireme
