#include "trace/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::trace {
namespace {

constexpr unsigned kZlibBuffer = 1U << 18;

class FileBytes : public ByteSource {
 public:
  FileBytes(gzFile file, std::string path) : file_(file), path_(std::move(path)) { gzbuffer(file_, kZlibBuffer); }
  ~FileBytes() override { gzclose(file_); }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  size_t read(char* out, size_t bytes) override {
    size_t done = 0;
    while (done < bytes && fault_.empty()) {
      const auto piece = static_cast<unsigned>(std::min<size_t>(bytes - done, 1U << 30));
      const int n = gzread(file_, out + done, piece);
      if (n > 0) done += static_cast<size_t>(n);
      // At the end of a stream that is cut off, zlib gives what it has and reports the fault only now.
      if (n <= 0 || static_cast<unsigned>(n) < piece) look_for_fault();
      if (n <= 0) break;
    }
    return done;
  }

  [[nodiscard]] std::string fault() const override { return fault_; }

 private:
  void look_for_fault() {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    if (code == Z_OK || code == Z_STREAM_END) return;
    if (code == Z_ERRNO) {
      throw Error(ErrorKind::kIo, str("[trace.read] '", path_, "' cannot be read: ", std::strerror(errno), "."));
    }
    fault_ = code == Z_BUF_ERROR ? "the gzip stream is cut off" : str("the gzip stream is damaged (", text, ")");
  }

  gzFile file_;
  std::string path_;
  std::string fault_;
};

class TextBytes : public ByteSource {
 public:
  explicit TextBytes(std::string_view text) : rest_(text) {}

  size_t read(char* out, size_t bytes) override {
    const size_t n = std::min(bytes, rest_.size());
    if (n > 0) std::memcpy(out, rest_.data(), n);
    rest_.remove_prefix(n);
    return n;
  }

  [[nodiscard]] std::string fault() const override { return {}; }

 private:
  std::string_view rest_;
};

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::kIo, str("[trace.read] '", path, "' ", why, "; a regular file that can be read is required."));
}

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  // O_NONBLOCK: opening a pipe of that name must not hang.
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) fail(path, str("cannot be opened: ", std::strerror(errno)));
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) fail(path, str("cannot be looked at: ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) fail(path, S_ISDIR(info.st_mode) ? "is a folder" : "is not a regular file");
  const gzFile file = gzdopen(fd.get(), "rb");
  if (file == nullptr) fail(path, "cannot be opened: out of memory");
  (void)fd.release();
  return std::make_unique<FileBytes>(file, path);
}

std::unique_ptr<ByteSource> bytes_of(std::string_view text) { return std::make_unique<TextBytes>(text); }

}  // namespace trireme::trace
