#include "profile/trace_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/log.h"
#include "base/str.h"

namespace trireme::profile {
namespace {

[[noreturn]] void fail(int rank, const std::string& path, const char* what, int error) {
  throw Error(ErrorKind::kIo,
              str("[profile.collective_trace] rank ", rank, ": ", what, " '", path, "' failed: ", std::strerror(error),
                  ". Give a run folder on a local disk with room and write permission."));
}

/// Not O_TRUNC, not through a link, and for us alone: the name may be in a folder that others can write to.
int create_exclusively(const std::string& path) {
  return open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

std::string unique_suffix() {
  static std::atomic<uint32_t> counter{0};
  return str(".", getpid(), ".", counter.fetch_add(1, std::memory_order_relaxed));
}

/// Without a name: it is gone with this process if that is killed before it gives the file one. -1 where that cannot be done.
int create_nameless(const std::string& folder) {
  if (access("/proc/self/fd", X_OK) != 0) return -1;  // needed by give_name()
  return open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
}

/// Maps a new file; false and errno when there is no room. Throws nothing, so that the caller may try the next place.
bool create_and_map(NewTraceFile& file, size_t bytes) {
  file.fd = create_nameless(std::filesystem::path(file.path).parent_path());
  const bool nameless = file.fd >= 0;
  const int fd = nameless ? file.fd : create_exclusively(file.temporary);
  if (fd < 0) return false;
  // Really on the disk: a hole that cannot be filled later would be a SIGBUS in the middle of training.
  int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (error == 0) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) {
      error = errno;
    } else {
      file.memory = memory;
    }
  }
  if (error != 0 || !nameless) close(fd);
  if (error == 0) return true;
  file.fd = -1;
  if (!nameless) unlink(file.temporary.c_str());
  errno = error;
  return false;
}

/// False and errno when it cannot be done; the file is gone then.
bool give_name(const NewTraceFile& file) {
  if (file.fd >= 0) {
    const std::string self = str("/proc/self/fd/", file.fd);
    const auto link = [&](const std::string& name) {
      return linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    const bool named = link(file.path);
    const bool done = named || errno != EEXIST || !link(file.temporary);
    const int error = errno;
    close(file.fd);
    errno = error;
    if (done) return named;
  }
  if (rename(file.temporary.c_str(), file.path.c_str()) == 0) return true;
  const int error = errno;
  unlink(file.temporary.c_str());
  errno = error;
  return false;
}

std::vector<std::string> memory_folders() {
  std::vector<std::string> folders = {"/dev/shm"};
  if (const char* tmp = std::getenv("TMPDIR"); tmp != nullptr && *tmp == '/') folders.emplace_back(tmp);
  folders.emplace_back("/tmp");
  return folders;
}

void write_pointer(const NewTraceFile& file) {
  const std::string text = str(kPointerMagic, "\nhost ", host_name(), "\npath ", file.path, "\n");
  const std::string temporary = file.pointer + unique_suffix();
  const int fd = create_exclusively(temporary);
  const bool ok = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!ok || rename(temporary.c_str(), file.pointer.c_str()) != 0) {
    log::warn("profile", "cannot write '", file.pointer, "' (", std::strerror(ok ? errno : error),
              "), which would say that the collective trace is in '", file.path, "'");
    unlink(temporary.c_str());
  }
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string("unknown");
}

bool on_network_file_system(const std::string& folder) {
  // From linux/magic.h and the file systems' own sources; those outside the kernel tree are in no header.
  static constexpr std::array<uint32_t, 17> kNetwork = {
      0x6969,      // nfs
      0x517B,      // smb
      0xFF534D42,  // cifs
      0xFE534D42,  // smb2
      0x00C36400,  // ceph
      0x0BD00BD0,  // lustre
      0x47504653,  // gpfs
      0x5346414F,  // afs
      0x6B414653,  // kafs
      0x73757245,  // coda
      0x01021997,  // 9p
      0x65735546,  // fuse: may be sshfs, and may not map at all
      0xAAD7AAEA,  // panfs
      0x19830326,  // beegfs
      0x7461636F,  // ocfs2
      0x01161970,  // gfs2
      0x6A656A63,  // virtiofs
  };
  struct statfs info{};
  if (statfs(folder.c_str(), &info) != 0) return false;
  return std::find(kNetwork.begin(), kNetwork.end(), static_cast<uint32_t>(info.f_type)) != kNetwork.end();
}

NewTraceFile create_trace_file(const TraceOptions& options, size_t bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path wanted = fs::absolute(options.path, error).lexically_normal();
  if (error) fail(options.rank, options.path, "resolving", error.value());
  fs::create_directories(wanted.parent_path(), error);
  if (error) fail(options.rank, wanted.parent_path(), "creating folder", error.value());

  const bool in_memory = options.place == TracePlace::kMemory ||
                         (options.place == TracePlace::kAuto && on_network_file_system(wanted.parent_path()));
  NewTraceFile file;
  if (!in_memory) {
    file.path = wanted;
    file.temporary = file.path + unique_suffix();
    if (!create_and_map(file, bytes)) fail(options.rank, file.temporary, "creating", errno);
    return file;
  }
  int last_error = ENOENT;
  for (const std::string& folder : memory_folders()) {
    if (on_network_file_system(folder)) continue;
    // The run folder's hash keeps runs apart; the number keeps one user's runs of the same pid apart.
    file.path = str(folder, "/trireme-trace-", std::hex, std::hash<std::string>{}(wanted), std::dec, "-rank",
                    options.rank, unique_suffix());
    file.temporary = file.path + ".new";
    file.pointer = wanted;
    if (create_and_map(file, bytes)) return file;
    last_error = errno;
  }
  fail(options.rank, file.temporary, "creating", last_error);
}

void publish_trace_file(const NewTraceFile& file) {
  // rename() moves a link itself, so a link planted under this name is not followed.
  if (rename(file.path.c_str(), (file.path + ".old").c_str()) != 0 && errno != ENOENT) {
    log::warn("profile", "cannot keep '", file.path, "' as '.old': ", std::strerror(errno), "; it is replaced");
  }
  if (!give_name(file)) fail(-1, file.path, "renaming to", errno);
  if (!file.pointer.empty()) write_pointer(file);
}

}  // namespace trireme::profile
