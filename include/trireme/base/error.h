// The one exception type of Trireme, and the check for our own invariants.
//
// Form of every message: `[component.operation] rank r/n: what is wrong, with values; what is required. What to do.`
// docs/errors.md lists the kinds with the exit codes that the commands give them.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace trireme {

enum class ErrorKind {
  kInvalidArgument,  ///< an argument of a call is wrong
  kConfig,           ///< a configuration file, flag or environment variable is wrong
  kUnsupported,      ///< two features that do not combine
  kUnavailable,      ///< not in this build or on this machine
  kMismatch,         ///< ranks called different things
  kPeerLost,         ///< another rank died
  kTimeout,          ///< nothing happened within the deadline
  kOutOfMemory,
  kIo,
  kInternal,  ///< our own bug; please report it
};

/// "kMismatch" and so on.
[[nodiscard]] std::string_view to_string(ErrorKind kind) noexcept;

/// 2 wrong use or config, 4 unavailable, 5 timeout or lost peer, 70 our own bug, 1 everything else.
[[nodiscard]] int exit_code(ErrorKind kind) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);
}  // namespace detail

}  // namespace trireme

/// For invariants of Trireme itself, never for user input. Throws kInternal and asks for a report.
#define TRIREME_CHECK(condition, ...)                                                              \
  do {                                                                                             \
    if (!(condition)) [[unlikely]]                                                                 \
      ::trireme::detail::check_failed(#condition, __FILE__, __LINE__, ::std::string{__VA_ARGS__}); \
  } while (false)
