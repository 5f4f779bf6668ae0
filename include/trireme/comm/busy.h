// Telling the watch for hangs that this rank is at work that the others have to wait for.
#pragma once

#include <string_view>

namespace trireme::comm {

/// Purpose       While it lives, whoever asks what this rank does instead of taking part is told `what`, how far it is and since when.
///               Ranks that wait for this one are then no hang (TRIREME_HANG_AFTER_S): it is said as a piece of news, again after twice
///               the time, and so on. The time-out of the call that they wait in goes on.
/// Thread safety Of its own thread. Scopes may nest and may be of several threads; 8 at a time are shown.
/// Cost          a lock and 128 bytes written, no system call.
class BusyScope {
 public:
  /// See busy().
  BusyScope(std::string_view what, double fraction);
  ~BusyScope();
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

  /// How much is done, 0 to 1. [local]
  void progress(double fraction) noexcept;

 private:
  int slot_;
};

/// For saving, evaluating, compiling and the like. [local]
///
///     const auto scope = trireme::busy("saving a checkpoint");
///
/// what      shown to people; the first 95 bytes are kept.
/// fraction  how much is done, 0 to 1; below 0 (the default) none is shown.
[[nodiscard]] inline BusyScope busy(std::string_view what, double fraction = -1) { return {what, fraction}; }

}  // namespace trireme::comm
