#include "trireme/base/error.h"

#include "base/str.h"

namespace trireme {

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "kInvalidArgument";
    case ErrorKind::kConfig:
      return "kConfig";
    case ErrorKind::kUnsupported:
      return "kUnsupported";
    case ErrorKind::kUnavailable:
      return "kUnavailable";
    case ErrorKind::kMismatch:
      return "kMismatch";
    case ErrorKind::kPeerLost:
      return "kPeerLost";
    case ErrorKind::kTimeout:
      return "kTimeout";
    case ErrorKind::kOutOfMemory:
      return "kOutOfMemory";
    case ErrorKind::kIo:
      return "kIo";
    case ErrorKind::kInternal:
      return "kInternal";
  }
  return "unknown";
}

int exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
    case ErrorKind::kConfig:
    case ErrorKind::kUnsupported:
      return 2;
    case ErrorKind::kUnavailable:
      return 4;
    case ErrorKind::kPeerLost:
    case ErrorKind::kTimeout:
      return 5;
    case ErrorKind::kInternal:
      return 70;
    default:
      return 1;
  }
}

void detail::check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw Error(ErrorKind::kInternal,
              str("[internal] ", file, ":", line, ": '", condition, "' does not hold", message.empty() ? "" : ": ",
                  message, ". This is a bug in Trireme; please report it."));
}

}  // namespace trireme
