// A file system of a chosen size, seen only by one child process, so that disks can be full in earnest.
#pragma once

#include <functional>
#include <string>

namespace trireme::test {

/// Runs `body` in a child that has a tmpfs of its own mounted on `folder` ("size=1m,nr_inodes=20"). Expectations that fail in
/// there are printed. 0 when none failed; what the kernel refuses is put into `*refused`, and nothing was run then.
int run_with_tmpfs(const std::string& folder, const std::string& options, const std::function<void()>& body,
                   std::string* refused);

/// Writes zeros to the file until the disk is full, then gives back `pages` pages.
void fill_all_but(const std::string& file, int pages);

}  // namespace trireme::test
