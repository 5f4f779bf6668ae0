#include "checkpoint/small_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

namespace trireme::test {
namespace {

constexpr int kRefused = 77;

// Root needs no user namespace, and in one it would lose its rights over files of other users.
bool enter_mount_namespace() {
  if (geteuid() == 0 && unshare(CLONE_NEWNS) == 0) return true;
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  std::ofstream map("/proc/self/uid_map");
  map << "0 " << user << " 1";
  map.flush();
  return map.good();
}

}  // namespace

int run_with_tmpfs(const std::string& folder, const std::string& options, const std::function<void()>& body,
                   std::string* refused) {
  refused->clear();
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) return -1;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    // Private, or the mount would appear outside too.
    if (!enter_mount_namespace() || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", folder.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
      const std::string why = std::string("no tmpfs of one's own can be mounted here: ") + std::strerror(errno);
      (void)!write(pipes[1], why.data(), why.size());
      _exit(kRefused);
    }
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  close(pipes[1]);
  char text[256];
  for (ssize_t got = 0; (got = read(pipes[0], text, sizeof text)) > 0;) refused->append(text, static_cast<size_t>(got));
  close(pipes[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void fill_all_but(const std::string& file, int pages) {
  const auto page = static_cast<off_t>(sysconf(_SC_PAGESIZE));
  const std::vector<char> zeros(static_cast<size_t>(page));
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  off_t size = 0;
  while (write(fd, zeros.data(), zeros.size()) == page) size += page;
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_GE(size, pages * page);
  EXPECT_EQ(ftruncate(fd, size - pages * page), 0);
  close(fd);
}

}  // namespace trireme::test
