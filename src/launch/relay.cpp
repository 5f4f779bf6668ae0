#include "launch/relay.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/env.h"
#include "base/log.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

Show show_of(const std::map<int, Show>& by_rank, int rank) {
  const auto it = by_rank.find(rank);
  return it == by_rank.end() ? Show::kLines : it->second;
}

std::string prefix_of(int rank, int console_fd) {
  constexpr std::array<const char*, 6> kColours = {"36", "33", "32", "35", "34", "31"};
  if (isatty(console_fd) == 0 || env_value("NO_COLOR") != nullptr) return str("[rank", rank, "]: ");
  return str("\x1b[", kColours[static_cast<size_t>(rank) % kColours.size()], "m[rank", rank, "]:\x1b[0m ");
}

/// Never cuts anything off: the log of a session that died says why. O_NOFOLLOW: nobody may plant a way to another file.
Fd open_log(const std::string& path) {
  Fd log(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | O_NOFOLLOW, 0644));
  if (log) return log;
  if (errno == ELOOP) throw Error(ErrorKind::kIo, str("[launch.start] ", path, " is a link; remove it."));
  throw Error(ErrorKind::kIo, str("[launch.start] ", path, ": ", std::strerror(errno), "."));
}

}  // namespace

Relay::Relay(const JobSpec& spec, const std::string& run_dir, const std::string& session, Console& console)
    : console_(console) {
  for (int rank = 0; rank < spec.num_ranks; ++rank) {
    for (const int console_fd : {1, 2}) {
      auto stream = std::make_unique<Stream>();
      const std::string path = str(run_dir, "/logs/rank", rank, console_fd == 1 ? ".out" : ".err");
      stream->log = open_log(path);
      struct stat log{};
      if (fstat(stream->log.get(), &log) == 0 && log.st_size > 0) {
        const std::string line = str("\n--- ", session, " ---\n");
        to_log(*stream, line.data(), line.size());
      }
      std::array<int, 2> ends{};
      if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw Error(ErrorKind::kIo, str("[launch.start] no pipe for rank ", rank, ": ", std::strerror(errno),
                                        ". Each rank needs 6 descriptors; raise RLIMIT_NOFILE."));
      }
      stream->read_end = Fd(ends[0]);
      stream->write_end = Fd(ends[1]);
      fcntl(ends[0], F_SETFL, O_NONBLOCK);
      stream->console_fd = console_fd;
      stream->show = show_of(console_fd == 1 ? spec.out : spec.err, rank);
      stream->lines = LineSplitter(prefix_of(rank, console_fd));
      streams_.push_back(std::move(stream));
    }
  }
}

void Relay::to_log(Stream& stream, const char* bytes, size_t size) {
  while (size > 0 && !stream.log_failed) {
    const ssize_t written = write(stream.log.get(), bytes, size);
    if (written >= 0) {
      bytes += written;
      size -= static_cast<size_t>(written);
    } else if (errno != EINTR) {
      stream.log_failed = true;
      log::warn("launch", "a log file cannot be written any more (", std::strerror(errno),
                "); the console still shows all");
    }
  }
}

void Relay::note(int rank, std::string_view text) {
  to_log(*streams_[2 * static_cast<size_t>(rank) + 1], text.data(), text.size());
}

void Relay::take(Stream& stream, std::string_view bytes) {
  to_log(stream, bytes.data(), bytes.size());
  stream.wrote = true;
  std::string text;
  if (stream.show == Show::kRaw) text = bytes;
  if (stream.show == Show::kLines) stream.lines.add(bytes, std::chrono::steady_clock::now(), text);
  console_.write(stream.console_fd, std::move(text),
                 stream.show == Show::kRaw ? Console::Form::kRaw : Console::Form::kLines);
}

bool Relay::pump(size_t index) {
  Stream& stream = *streams_[index];
  std::array<char, 65536> buffer;
  const ssize_t got = read(stream.read_end.get(), buffer.data(), buffer.size());
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (got > 0) {
    take(stream, {buffer.data(), static_cast<size_t>(got)});
    return true;
  }
  end(stream);
  return false;
}

void Relay::end(Stream& stream) {
  std::string text;
  stream.lines.finish(text);
  console_.write(stream.console_fd, std::move(text));
  stream.read_end.reset();
}

bool Relay::finish(size_t index) {
  Stream& stream = *streams_[index];
  if (!stream.read_end) return true;
  drain(index);
  char more = 0;
  const ssize_t got = read(stream.read_end.get(), &more, 1);
  if (got > 0) take(stream, {&more, 1});
  end(stream);
  return got == 0;
}

void Relay::drain(size_t index) {
  Stream& stream = *streams_[index];
  std::array<char, 65536> buffer;
  for (int round = 0; round < 16 && stream.read_end; ++round) {
    const ssize_t got = read(stream.read_end.get(), buffer.data(), buffer.size());
    if (got <= 0) return;
    take(stream, {buffer.data(), static_cast<size_t>(got)});
  }
}

}  // namespace trireme::launch
