// Reads by pread(), not by mapping: a foreign file may be cut short while we look, which would be a SIGBUS.
//
// Why two equal copies make one whole record: the first copy ends before the second begins. The second copy's state is
// looked at after every word of the first was, so no word of the first is newer than that state; the first copy's state
// is looked at before every word of the second, so no word of the second is older. When both copies are equal, all is
// of that state.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sstream>

#include "base/fd.h"
#include "base/str.h"
#include "profile/collective_trace.h"
#include "profile/trace_decode.h"
#include "profile/trace_file.h"
#include "profile/trace_layout.h"

namespace trireme::profile {
namespace {

constexpr size_t kMaxFileBytes = layout::kHeaderBytes + size_t{kMaxTraceCapacity} * sizeof(TraceRecord);

class File {
 public:
  // O_NONBLOCK: opening a pipe that has this name must not hang.
  explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  [[nodiscard]] bool ok() const { return static_cast<bool>(fd_); }
  [[nodiscard]] int fd() const { return fd_.get(); }

  /// Bytes read; fewer than asked for at the end of the file.
  size_t read_at(size_t offset, char* out, size_t bytes) const {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t n = pread(fd_.get(), out + done, bytes - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

 private:
  Fd fd_;
};

Reason reject(const std::string& path, const std::string& why) {
  return Reason{str("[profile.collective_trace] '", path, "' ", why)};
}

/// Between two copies. ThreadSanitizer does not know fences, and what it watches is not in the file.
void full_fence() {
#ifndef __SANITIZE_THREAD__
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Makes every record of `image` a copy of one moment, or kBusy when it kept changing.
void settle(const File& file, std::vector<char>& image) {
  std::vector<char> second(image.size());
  full_fence();
  second.resize(file.read_at(0, second.data(), second.size()));
  image.resize(second.size());
  for (size_t at = layout::kHeaderBytes; at + sizeof(TraceRecord) <= image.size(); at += sizeof(TraceRecord)) {
    char* record = image.data() + at;
    bool equal = std::memcmp(record, second.data() + at, sizeof(TraceRecord)) == 0;
    for (int i = 0; i < kReadTries && !equal; ++i) {
      std::memcpy(record, second.data() + at, sizeof(TraceRecord));
      full_fence();
      if (file.read_at(at, second.data() + at, sizeof(TraceRecord)) != sizeof(TraceRecord)) break;
      equal = std::memcmp(record, second.data() + at, sizeof(TraceRecord)) == 0;
    }
    if (!equal) std::memcpy(record + offsetof(TraceRecord, state), &layout::kBusy, sizeof(layout::kBusy));
  }
  // The header last: its counter is then not behind any record, nor its group table behind any record's group.
  (void)file.read_at(0, image.data(), std::min(image.size(), layout::kHeaderBytes));
}

/// What remains of an image is header and calls that have not finished, each record equal in two copies.
void keep_pending(const File& file, std::vector<char>& image) {
  full_fence();
  for (size_t at = layout::kHeaderBytes; at + sizeof(TraceRecord) <= image.size(); at += sizeof(TraceRecord)) {
    char* record = image.data() + at;
    uint32_t state = 0;
    std::memcpy(&state, record + offsetof(TraceRecord, state), sizeof(state));
    if (state == 0) continue;
    const uint32_t code = layout::code_of(state);
    std::array<char, sizeof(TraceRecord)> again;
    const bool pending =
        (code == static_cast<uint32_t>(CallState::kQueued) || code == static_cast<uint32_t>(CallState::kStarted)) &&
        file.read_at(at, again.data(), again.size()) == again.size() &&
        std::memcmp(again.data(), record, again.size()) == 0;
    if (pending) continue;
    std::memset(record + offsetof(TraceRecord, state), 0, sizeof(state));
    std::memset(record + offsetof(TraceRecord, serial), 0, sizeof(TraceRecord::serial));
  }
  (void)file.read_at(0, image.data(), std::min(image.size(), layout::kHeaderBytes));
}

/// Makes an image of the whole file one that can be decoded.
using Settle = void (*)(const File& file, std::vector<char>& image);

Result<TraceSnapshot> read_file(const std::string& path, bool follow_pointer, std::vector<char>& image, Settle settle);

Result<TraceSnapshot> read_pointer(const std::string& path, std::vector<char>& image, Settle settle) {
  const std::string text(image.data(), image.size());
  std::istringstream in(text);
  std::string line;
  std::string host;
  std::string target;
  while (std::getline(in, line)) {
    if (line.starts_with("host ")) host = line.substr(5);
    if (line.starts_with("path ")) target = line.substr(5);
  }
  if (target.empty()) return reject(path, "is a damaged pointer file: it has no line 'path FILE'");
  Result<TraceSnapshot> result = read_file(target, false, image, settle);
  if (result.ok()) return result;
  return reject(path, str("says that the trace is on host '", host, "' (this is '", host_name(),
                          "'), and there: ", result.reason()));
}

Result<TraceSnapshot> read_file(const std::string& path, bool follow_pointer, std::vector<char>& image, Settle settle) {
  const File file(path);
  if (!file.ok()) return reject(path, str("cannot be opened: ", std::strerror(errno)));
  struct stat info{};
  if (fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode)) return reject(path, "is not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size > kMaxFileBytes) {
    return reject(path, str("is no trace: ", size, " bytes, more than the largest ring, ", kMaxFileBytes));
  }
  image.resize(size);
  image.resize(file.read_at(0, image.data(), size));
  const std::string_view magic = kPointerMagic;
  if (follow_pointer && std::string_view(image.data(), image.size()).starts_with(magic)) {
    return read_pointer(path, image, settle);
  }
  settle(file, image);
  return decode_trace({image.data(), image.size()}, path);
}

}  // namespace

Result<TraceSnapshot> read_collective_trace(const std::string& path) {
  std::vector<char> image;
  return read_file(path, true, image, settle);
}

Result<TraceSnapshot> PendingCalls::read(const std::string& path) {
  return read_file(path, true, image_, keep_pending);
}

}  // namespace trireme::profile
