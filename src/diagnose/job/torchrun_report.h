// The report of torchrun (ChildFailedError), which spreads a failure over several lines:
//   Root Cause (first observed failure):
//   [0]:
//     time      : 2026-01-15_05:44:28
//     host      : node-01
//     rank      : 1 (local_rank: 1)
//     exitcode  : -9 (pid: 4121)
//     error_file: <N/A>
//     traceback : Signal 9 (SIGKILL) received by PID 4121
#pragma once

#include "diagnose/job/log_line.h"

namespace trireme::diagnose {

class TorchrunReport {
 public:
  static constexpr std::string_view kOpening = "Failures:";

  explicit TorchrunReport(Story& story) : story_(story) {}
  void begin_file() { open_ = false; }
  void open(const LogLine& line);
  [[nodiscard]] bool is_open() const { return open_; }
  void line(const LogLine& line);

 private:
  void put();

  Story& story_;
  bool open_ = false;
  bool root_ = false;
  bool has_rank_ = false;
  int64_t since_ = 0;
  RankEnd end_{};
};

}  // namespace trireme::diagnose
