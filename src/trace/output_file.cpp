#include "trace/output_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/fd.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::trace {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int reason) {
  throw Error(ErrorKind::kIo, str("[trace.write] ", what, " '", path, "' failed: ", std::strerror(reason),
                                  ". A folder that can be written to, with room, is required."));
}

}  // namespace

struct OutputFile::State {
  std::string path;
  std::string temporary;
  Fd fd;
  gzFile gzip = nullptr;
  bool finished = false;
};

OutputFile::OutputFile(const std::string& path) : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->temporary = path + ".new";
  state_->fd = Fd(open(state_->temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!state_->fd) fail(state_->temporary, "creating", errno);
  if (!path.ends_with(".gz")) return;
  // Level 1: traces shrink to a tenth with it, and higher levels cost several times as long for little.
  state_->gzip = gzdopen(state_->fd.get(), "wb1");
  if (state_->gzip == nullptr) fail(state_->temporary, "compressing", ENOMEM);
  (void)state_->fd.release();
  gzbuffer(state_->gzip, 1U << 18);
}

OutputFile::~OutputFile() {
  if (state_->gzip != nullptr) gzclose(state_->gzip);
  if (!state_->finished) unlink(state_->temporary.c_str());
}

void OutputFile::write(std::string_view text) {
  while (!text.empty()) {
    const size_t piece = std::min<size_t>(text.size(), 1U << 30);
    ssize_t n = 0;
    if (state_->gzip != nullptr) {
      n = gzwrite(state_->gzip, text.data(), static_cast<unsigned>(piece));
      if (n <= 0) fail(state_->temporary, "writing", errno);
    } else {
      n = ::write(state_->fd.get(), text.data(), piece);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(state_->temporary, "writing", errno);
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void OutputFile::finish() {
  if (state_->gzip != nullptr) {
    const int code = gzclose(state_->gzip);
    state_->gzip = nullptr;
    if (code != Z_OK) fail(state_->temporary, "writing", errno);
  }
  if (std::rename(state_->temporary.c_str(), state_->path.c_str()) != 0) fail(state_->path, "naming", errno);
  state_->finished = true;
}

}  // namespace trireme::trace
