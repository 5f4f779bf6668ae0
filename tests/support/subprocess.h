// Runs a program and watches it: its output as it comes, its end, and the processes that it started.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "support/patience.h"

namespace trireme::testing {

/// Thread safety  none. Lifetime  the destructor kills the program and waits for it.
class Subprocess {
 public:
  struct Options {
    std::map<std::string, std::string> env;  ///< added
    std::string folder;                      ///< where it runs; empty: here
    bool read_stdout = true;                 ///< false: the pipe is there, but nobody reads it
  };
  explicit Subprocess(const std::vector<std::string>& command) : Subprocess(command, Options{}) {}
  Subprocess(const std::vector<std::string>& command, const Options& options);
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }

  /// Reads until `text` has come `times` times on stdout or stderr together; false when `limit` passes or both end.
  [[nodiscard]] bool await_output(const std::string& text, int times = 1,
                                  std::chrono::milliseconds limit = test::kPatience);
  /// Reads on until the program has ended. Exit code, 128 + signal when it was killed, -1 after `limit` (then it is killed).
  int wait(std::chrono::milliseconds limit = test::kPatience);

  [[nodiscard]] const std::string& out() const { return text_[0]; }
  [[nodiscard]] const std::string& err() const { return text_[1]; }

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = 0;
  int pidfd_ = -1;
  int pipes_[2] = {-1, -1};
  bool read_stdout_ = true;
  bool ended_ = false;
  std::string text_[2];
};

/// Runs to the end.
struct Finished {
  int exit_code = 0;
  std::string out;
  std::string err;
};
[[nodiscard]] Finished run_program(const std::vector<std::string>& command,
                                   const Subprocess::Options& options = Subprocess::Options{});

/// A fresh variable that all processes below carry in their environment, by which they are found whatever they do.
class Tag {
 public:
  Tag();
  [[nodiscard]] std::pair<std::string, std::string> variable() const { return {"TRIREME_TEST_TAG", value_}; }
  /// Processes that carry it now, zombies left out.
  [[nodiscard]] std::vector<pid_t> processes() const;
  /// Waits for the ends of all that carry it. The number that is left after `limit`.
  [[nodiscard]] int await_none(std::chrono::milliseconds limit = test::kPatience) const;

 private:
  std::string value_;
};

}  // namespace trireme::testing
