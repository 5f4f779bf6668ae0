// What a Group refers to, and how groups are made.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/backends/backend_entry.h"
#include "comm/backends/host/host_backend.h"
#include "profile/collective_trace.h"
#include "trireme/comm/group.h"

namespace trireme::comm {

struct GroupState {
  std::string name;
  std::string backend_name;
  std::vector<int> global_ranks;
  std::chrono::milliseconds timeout{0};
  std::shared_ptr<Meeting> meeting;  ///< null in a world of one
  std::string key;                   ///< of this group in the meeting
  std::shared_ptr<profile::CollectiveTrace> trace;
  std::shared_ptr<void> keep_alive;  ///< the store's server, where this rank holds it
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  HostBackend* host = nullptr;  ///< the backend of process_group, when it is ours

  std::mutex mutex;
  std::map<std::string, int> num_subgroups;  ///< by member list: how often it was asked for
};

struct GroupOptions {
  std::string name = "world";
  std::string backend = "host";
  std::vector<int> global_ranks;
  int rank = 0;
  std::chrono::milliseconds timeout{30 * 60 * 1000};
  std::shared_ptr<Meeting> meeting;
  std::string key = "world";
  std::shared_ptr<profile::CollectiveTrace> trace;
  MeetingWatch watch;  ///< of the group that this one is made out of
};
/// Throws kInvalidArgument unless a group can have this time-out: 1 ms to 365 days.
void require_timeout(std::chrono::milliseconds timeout);

/// [collective among the members, blocking]
[[nodiscard]] Group make_group(const GroupOptions& options);

/// n ranks as threads of this process; element r belongs to rank r. For tests and for measuring. With `trace_dir`, rank
/// r's trace is the file rank<r>.trace there.
[[nodiscard]] std::vector<Group> make_thread_groups(int size,
                                                    std::chrono::milliseconds timeout = std::chrono::seconds(30),
                                                    const std::string& trace_dir = {});

/// Ranks are processes of this host that meet in a store. `root` is where death notices appear.
[[nodiscard]] std::shared_ptr<Meeting> make_store_meeting(std::shared_ptr<rendezvous::Store> store,
                                                          std::shared_ptr<rendezvous::Store> root);

/// Memory that all members have mapped, one part each, as often as it is asked for. [collective, blocking]
[[nodiscard]] SharedParts share_memory(const Group& group, size_t part_bytes);

/// The host backend behind a group; kUnsupported naming `what` when it has another.
[[nodiscard]] HostBackend& require_host(const Group& group, std::string_view what);

}  // namespace trireme::comm
