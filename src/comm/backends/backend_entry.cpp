#include "comm/backends/backend_entry.h"

#include <array>

#include "base/str.h"
#include "comm/backends/host/host_backend.h"
#include "profile/group_meeting.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

c10::intrusive_ptr<c10d::Backend> make_host(const BackendOptions& options) {
  profile::CollectiveTrace* trace = options.trace.get();
  const uint16_t group =
      trace == nullptr ? uint16_t{0}
                       : trace->register_group(options.communicator.group_name, options.communicator.global_ranks);
  profile::GroupMeeting meeting(options.size > 1 && options.meeting->waits() ? trace : nullptr, group);
  auto communicator =
      options.meeting->meet(options.key, options.rank, options.size, options.communicator, options.watch);
  meeting.done();
  return c10::make_intrusive<HostBackend>(std::move(communicator), options.trace, group);
}

c10::intrusive_ptr<c10d::Backend> make_nothing(const BackendOptions& /*options*/) { return {}; }

}  // namespace

Availability host_available() { return {true, {}}; }

std::span<const BackendEntry> backend_entries() {
  static constexpr std::array<BackendEntry, 3> kEntries = {{{"host", host_available, make_host},
                                                            {"nccl", nccl_available, make_nothing},
                                                            {"mpi", mpi_available, make_nothing}}};
  return kEntries;
}

const BackendEntry& find_backend(std::string_view name) {
  std::string known;
  for (const BackendEntry& entry : backend_entries()) {
    known += str(known.empty() ? "" : ", ", entry.name);
    if (entry.name != name) continue;
    if (const Availability state = entry.available(); !state.ok) {
      throw Error(ErrorKind::kUnavailable, str("[comm.", name, "] ", state.reason, "."));
    }
    return entry;
  }
  throw Error(ErrorKind::kInvalidArgument,
              str("[comm.init] backend '", name, "' is unknown; known are ", known, ". Use 'host' for CPU ranks."));
}

}  // namespace trireme::comm
