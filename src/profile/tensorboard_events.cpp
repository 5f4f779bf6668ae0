#include "profile/tensorboard_events.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/crc32c.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::profile {
namespace {

void put_fixed(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xFFU);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>((value & 0x7FU) | 0x80U);
  out += static_cast<char>(value);
}

// Wire types of protobuf: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
void put_tag(std::string& out, uint32_t field, uint32_t wire_type) { put_varint(out, (field << 3U) | wire_type); }

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_tag(out, field, 2);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string start_event(double wall_time_s) {
  std::string event;
  put_tag(event, 1, 1);
  put_fixed(event, std::bit_cast<uint64_t>(wall_time_s), 8);
  return event;
}

void put_step(std::string& event, int64_t step) {
  put_tag(event, 2, 0);
  put_varint(event, static_cast<uint64_t>(step));
}

double now_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Event files of one folder are read in the order of their names, so seconds come first; the counter keeps writers of
// one process apart.
std::string file_name() {
  static std::atomic<int> counter{0};
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = 'h';
  return str("events.out.tfevents.", static_cast<int64_t>(now_s()), '.', host.data(), '.', getpid(), '.', counter++);
}

}  // namespace

std::string frame_record(std::string_view message) {
  std::string record;
  record.reserve(message.size() + 16);
  put_fixed(record, message.size(), 8);
  put_fixed(record, mask_crc32c(crc32c(record.data(), 8)), 4);
  record += message;
  put_fixed(record, mask_crc32c(crc32c(message.data(), message.size())), 4);
  return record;
}

std::string encode_version_event(double wall_time_s) {
  std::string event = start_event(wall_time_s);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string encode_scalars_event(double wall_time_s, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_tag(value, 2, 5);
    put_fixed(value, std::bit_cast<uint32_t>(static_cast<float>(scalar.value)), 4);
    put_bytes(summary, 1, value);
  }
  std::string event = start_event(wall_time_s);
  put_step(event, step);
  put_bytes(event, 5, summary);
  return event;
}

std::string encode_restart_event(double wall_time_s, int64_t step) {
  std::string session_log;
  put_tag(session_log, 1, 0);
  put_varint(session_log, 1);  // SessionStatus START
  std::string event = start_event(wall_time_s);
  put_step(event, step);
  put_bytes(event, 7, session_log);
  return event;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  path_ = str(folder, '/', file_name());
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    throw Error(ErrorKind::kIo, str("[profile.tensorboard] '", path_, "' cannot be made: ", std::strerror(errno),
                                    ". Choose another run folder with --run-dir."));
  }
  append(encode_version_event(now_s()));
  flush();
}

TensorBoardWriter::~TensorBoardWriter() {
  try {
    flush();
  } catch (const Error&) {  // a destructor has nobody to tell; flush() has told before
  }
  close(fd_);
}

void TensorBoardWriter::append(std::string_view message) { pending_ += frame_record(message); }

void TensorBoardWriter::add_scalars(int64_t step, std::span<const Scalar> scalars) {
  append(encode_scalars_event(now_s(), step, scalars));
}

void TensorBoardWriter::mark_restart(int64_t step) { append(encode_restart_event(now_s(), step)); }

void TensorBoardWriter::flush() {
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const ssize_t written = write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int reason = errno;
      pending_.clear();
      throw Error(ErrorKind::kIo, str("[profile.tensorboard] '", path_, "': ", std::strerror(reason),
                                      ". Free space there, or choose another run folder with --run-dir."));
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  pending_.clear();
}

}  // namespace trireme::profile
