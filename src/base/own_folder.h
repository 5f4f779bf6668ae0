// A folder in /tmp, which belongs to everybody, for files that others must not plant or read.
#pragma once

#include <string>

namespace trireme {

/// "/tmp/trireme-<uid>".
[[nodiscard]] std::string own_tmp_folder();

/// Makes the folder with mode 0700 where it is missing. Returns why it is not to be used: it cannot be made, is a link or
/// no folder, or somebody else owns it or may write to it. Empty when all is well.
[[nodiscard]] std::string make_own_folder(const std::string& path);

}  // namespace trireme
