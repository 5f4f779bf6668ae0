// What an event of a trace is, told by its category and name.
#pragma once

#include <optional>
#include <string_view>

#include "trace/timeline.h"

namespace trireme::trace {

enum class EventKind : uint8_t {
  kIgnored,      ///< annotations, Python functions, runtime calls: they enclose or describe other things
  kStep,         ///< ProfilerStep#12
  kHost,         ///< an activity of a CPU thread
  kDevice,       ///< an activity of a GPU
  kDescription,  ///< record_param_comms: no time of its own, but says what a collective is
};

struct EventClass {
  EventKind kind = EventKind::kIgnored;
  Activity activity = Activity::kCompute;
  int64_t step = -1;
  bool collective = false;  ///< is one call, with or without arguments that describe it
};

/// Categories of Kineto since PyTorch 1.8, and of our own traces; an unknown category on a CPU thread counts as computation.
[[nodiscard]] EventClass classify(std::string_view category, std::string_view name);

}  // namespace trireme::trace
