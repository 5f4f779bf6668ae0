// The table of backends: the only thing that the rest of the library sees of them.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/algorithms/communicator.h"
#include "comm/backends/availability.h"

namespace c10d {
class Backend;
}
namespace trireme::profile {
class CollectiveTrace;
}

namespace trireme::comm {

/// How the members of a group find each other. Sub-groups meet in the same place under another key.
class Meeting {
 public:
  virtual ~Meeting() = default;
  /// Whether members may have to wait for each other here.
  [[nodiscard]] virtual bool waits() const noexcept { return true; }
  /// [collective among the members, blocking] `key` is the same on all members and used once; `watch` may be empty.
  [[nodiscard]] virtual std::unique_ptr<Communicator> meet(const std::string& key, int rank, int size,
                                                           CommunicatorOptions options, const MeetingWatch& watch) = 0;
  /// Memory that all members have mapped, one part each. [collective among the members, blocking]
  [[nodiscard]] virtual SharedParts share(const std::string& key, int rank, int size, size_t part_bytes,
                                          CommunicatorOptions options, const MeetingWatch& watch) = 0;
};

struct BackendOptions {
  std::shared_ptr<Meeting> meeting;
  std::string key;  ///< of this group in the meeting
  int rank = 0;
  int size = 1;
  CommunicatorOptions communicator;
  MeetingWatch watch;
  std::shared_ptr<profile::CollectiveTrace> trace;
};

/// One row per backend, in order of preference.
struct BackendEntry {
  std::string_view name;
  Availability (*available)();  ///< cheap, no side effects, may be called before fork
  c10::intrusive_ptr<c10d::Backend> (*make)(const BackendOptions&);
};
[[nodiscard]] std::span<const BackendEntry> backend_entries();

/// The row of that name; kUnavailable with the reason, or kInvalidArgument with the known names.
[[nodiscard]] const BackendEntry& find_backend(std::string_view name);

}  // namespace trireme::comm
