// The ranks' standard output and error: each into its log file as it is, and to the console in lines.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "launch/console.h"
#include "launch/job.h"
#include "launch/line_splitter.h"

namespace trireme::launch {

/// One stream of one rank.
struct Stream {
  Fd read_end;
  Fd write_end;  ///< handed to the rank, then closed here
  Fd log;
  int console_fd = 1;
  Show show = Show::kLines;
  LineSplitter lines{""};
  bool log_failed = false;
  bool wrote = false;  ///< the rank, in this session
};

/// Purpose    opens pipes and log files, and moves bytes when the launcher's event loop says that there are some.
/// Invariants a stream whose console is full is not read: then the rank waits in write(), as with any slow reader.
class Relay {
 public:
  /// Opens <run_dir>/logs/rankN.out and .err. What they hold stays; `session` then says in a line where the new output begins.
  Relay(const JobSpec& spec, const std::string& run_dir, const std::string& session, Console& console);

  [[nodiscard]] size_t size() const { return streams_.size(); }
  /// Two for each rank: out, then err.
  [[nodiscard]] Stream& stream(size_t index) { return *streams_[index]; }

  /// Reads what is there. False when the stream has ended; the rest of its last line has then been shown.
  [[nodiscard]] bool pump(size_t index);

  /// Appends lines of the launcher's own to this rank's log of stderr.
  void note(int rank, std::string_view text);

  /// Reads what is there now, up to 1 MiB, and leaves the end of the stream to pump().
  void drain(size_t index);

  /// As drain(), and ends the stream. False when somebody still holds its other end.
  bool finish(size_t index);

 private:
  void take(Stream& stream, std::string_view bytes);
  void end(Stream& stream);
  void to_log(Stream& stream, const char* bytes, size_t size);

  Console& console_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace trireme::launch
