// The error that a program ended with: the last line of a Python traceback, what() of an uncaught C++ exception, Trireme's own errors.
#pragma once

#include <array>
#include <map>
#include <span>

#include "diagnose/job/log_line.h"

namespace trireme::diagnose {

/// Purpose  Follows several lines. Ranks whose lines are mixed in one file are kept apart by what is in front of them.
class LastWordsReader {
 public:
  explicit LastWordsReader(Story& story) : story_(story) {}

  /// The words that begin one: "Traceback (most recent call last):", "terminate called after throwing".
  [[nodiscard]] static std::span<const std::string_view> openings();

  void begin_file() { open_.clear(); }
  void end_file() { open_.clear(); }
  void open(const LogLine& line, std::string_view opening);
  [[nodiscard]] bool is_open() const { return !open_.empty(); }
  void line(const LogLine& line);

 private:
  struct Traceback {
    int64_t since = 0;  ///< line number
    std::string where;  ///< of the innermost frame so far
  };
  Story& story_;
  std::map<int, Traceback> open_;  ///< by rank; -1: not told
};

}  // namespace trireme::diagnose
