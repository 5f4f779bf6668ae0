// One line on stderr that shows how far a run is: redrawn in place on a terminal, a new line every ten seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace trireme::cli {

/// Whether stderr is a terminal, or a launcher's pipe whose bytes go to one as they are (TRIREME_TERMINAL).
[[nodiscard]] bool stderr_is_shown_on_terminal();

class ProgressBar {
 public:
  /// `done` of the steps were done before, by the run that is resumed.
  explicit ProgressBar(int64_t done = 0, bool terminal = stderr_is_shown_on_terminal());
  /// `text` says what the numbers are. Draws at most ten times a second; the last step always.
  void update(int64_t done, int64_t total, const std::string& text);
  /// The same text, further on; on a terminal only, and not before the first update().
  void advance(int64_t done);
  /// Ends the line, so that what follows starts on its own.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(int64_t done);
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point last_draw_;
  int64_t first_done_;
  int64_t total_ = 0;
  std::string text_;
  bool open_line_ = false;
};

}  // namespace trireme::cli
