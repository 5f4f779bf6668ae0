// TensorBoard event files: records of a protobuf message Event, framed as TFRecord.
//
// A record is: u64 length, u32 masked CRC-32C of the length, the message, u32 masked CRC-32C of the message, all
// little-endian. Of Event we write wall_time (1), step (2), file_version (3), summary (5) and session_log (7); of
// Summary.Value tag (1) and simple_value (2). The first record holds file_version "brain.Event:2".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::profile {

/// One framed record around a message.
[[nodiscard]] std::string frame_record(std::string_view message);

struct Scalar {
  std::string tag;  ///< "train/loss": what stands before the slash groups the plots
  double value = 0;
};

/// Encoded Event messages, unframed. Time in seconds since 1970.
[[nodiscard]] std::string encode_version_event(double wall_time_s);
[[nodiscard]] std::string encode_scalars_event(double wall_time_s, int64_t step, std::span<const Scalar> scalars);
/// Tells TensorBoard to drop what earlier files of the folder show from `step` on: the run was resumed there.
[[nodiscard]] std::string encode_restart_event(double wall_time_s, int64_t step);

/// Purpose        Appends scalars to a new event file in `folder`, which it creates.
/// Thread safety  one thread at a time.
/// Lifetime       what was added is in the file after flush() or destruction; a kill loses at most what came after.
class TensorBoardWriter {
 public:
  /// Errors: kIo with path and reason.
  explicit TensorBoardWriter(const std::string& folder);
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  void add_scalars(int64_t step, std::span<const Scalar> scalars);
  void mark_restart(int64_t step);
  void flush();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void append(std::string_view message);
  std::string path_;
  std::string pending_;
  int fd_ = -1;
};

}  // namespace trireme::profile
