#include "profile/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/json.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::profile {
namespace {

constexpr std::string_view kLineStart = "{\"step\": ";

[[noreturn]] void fail(const std::string& path, int reason) {
  throw Error(ErrorKind::kIo, str("[profile.metrics] '", path, "': ", std::strerror(reason),
                                  ". Free space there, or choose another run folder with --run-dir."));
}

// Bytes of the leading lines that are whole and whose step is not after `last`.
size_t kept_bytes(std::string_view text, int64_t last) {
  size_t kept = 0;
  while (true) {
    const size_t end = text.find('\n', kept);
    if (end == std::string_view::npos) return kept;
    const std::string_view line = text.substr(kept, end - kept);
    if (line.substr(0, kLineStart.size()) != kLineStart) return kept;
    int64_t step = 0;
    const char* begin = line.data() + kLineStart.size();
    if (std::from_chars(begin, line.data() + line.size(), step).ec != std::errc{} || step > last) return kept;
    kept = end + 1;
  }
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, int64_t keep_through_step) : path_(path) {
  if (keep_through_step >= 0) {
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const size_t kept = kept_bytes(text, keep_through_step);
    if (kept < text.size() && truncate(path.c_str(), static_cast<off_t>(kept)) != 0) fail(path, errno);
  }
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(path, errno);
}

MetricsLog::~MetricsLog() { close(fd_); }

void MetricsLog::add(int64_t step, std::span<const Scalar> scalars) {
  std::string line = str(kLineStart, step);
  for (const Scalar& scalar : scalars) line += str(", ", json_quote(scalar.tag), ": ", json_number(scalar.value));
  line += "}\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, errno);
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace trireme::profile
