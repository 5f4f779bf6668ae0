#include "checkpoint/folder/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

// A piece is hashed and written while it is in the cache; one system call for it costs nothing beside the copy.
constexpr size_t kPieceBytes = 1U << 20U;

const char* advice(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "Free some space or choose another folder; earlier checkpoints are still there.";
    case EROFS:
    case EACCES:
    case EPERM:
      return "Choose a folder that this user can write to.";
    case EFBIG:
      return "Raise the limit of file sizes (ulimit -f), or choose another file system.";
    case EIO:
      return "The disk or the network file system has a fault (see dmesg); choose another folder.";
    default:
      return "Check the folder; earlier checkpoints are still there.";
  }
}

int open_again(const char* path, int flags, mode_t mode = 0) {
  int fd = -1;
  do fd = open(path, flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

void throw_io(const char* operation, const std::string& path, const char* what, int error_number) {
  throw Error(ErrorKind::kIo, str("[checkpoint.", operation, "] ", path, ": cannot ", what, ": ",
                                  std::generic_category().message(error_number), ". ", advice(error_number)));
}

FileBytes read_file(const std::string& path, size_t most) {
  // A pipe of that name would wait for a writer.
  const Fd fd(open_again(path.c_str(), O_RDONLY | O_NONBLOCK));
  if (!fd) throw_io("load", path, "open it", errno);
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) throw_io("load", path, "look at it", errno);
  if (!S_ISREG(status.st_mode)) throw_io("load", path, "read it", S_ISDIR(status.st_mode) ? EISDIR : EINVAL);

  FileBytes file;
  file.size = static_cast<size_t>(status.st_size);
  if (file.size > most) {
    throw Error(ErrorKind::kIo, str("[checkpoint.load] ", path, ": it has ", file.size, " bytes; at most ", most,
                                    " are possible. The checkpoint is damaged or incomplete."));
  }
  const size_t rounded = (file.size + 64) / 64 * 64;
  file.data = {static_cast<std::byte*>(std::aligned_alloc(64, rounded)), std::free};
  if (file.data == nullptr) {
    throw Error(ErrorKind::kOutOfMemory, str("[checkpoint.load] ", path, ": there is no memory for its ", file.size,
                                             " bytes. Free some, or load on a larger machine."));
  }
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  size_t done = 0;
  while (done < file.size) {
    const ssize_t got = read(fd.get(), file.data.get() + done, std::min(kPieceBytes, file.size - done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io("load", path, "read it", errno);
    if (got == 0) break;  // it became shorter; the caller compares sizes
    XXH3_64bits_update(&hash, file.data.get() + done, static_cast<size_t>(got));
    done += static_cast<size_t>(got);
  }
  file.size = done;
  file.checksum = XXH3_64bits_digest(&hash);
  return file;
}

struct FileWriter::Hash {
  XXH3_state_t state;
};

FileWriter::FileWriter(std::string path)
    : path_(std::move(path)), fd_(open_again(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666)), hash_(new Hash) {
  if (!fd_) throw_io("save", path_, "create it", errno);
  XXH3_64bits_reset(&hash_->state);
}

FileWriter::~FileWriter() = default;

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<const std::byte> piece = bytes.first(std::min(kPieceBytes, bytes.size()));
    const ssize_t wrote = ::write(fd_.get(), piece.data(), piece.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw_io("save", path_, "write to it", errno);
    XXH3_64bits_update(&hash_->state, piece.data(), static_cast<size_t>(wrote));
    size_ += static_cast<uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
}

void FileWriter::finish() {
  // Some file systems find out here that the disk is full.
  if (fsync(fd_.get()) != 0) throw_io("save", path_, "bring it to disk", errno);
}

uint64_t FileWriter::checksum() const noexcept { return XXH3_64bits_digest(&hash_->state); }

void sync_folder(const std::string& path) {
  const Fd fd(open_again(path.c_str(), O_RDONLY | O_DIRECTORY));
  if (!fd) throw_io("save", path, "open it", errno);
  // EINVAL: a file system that has nothing to bring to disk.
  if (fsync(fd.get()) != 0 && errno != EINVAL) throw_io("save", path, "bring it to disk", errno);
}

uint64_t checksum_of(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string to_hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace trireme::checkpoint
