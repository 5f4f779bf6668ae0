#include "trireme/comm/group.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/str.h"
#include "base/torch/torch_compat.h"
#include "comm/group_state.h"
#include "comm/meeting.h"
#include "profile/group_meeting.h"
#include "profile/rank_report.h"
#include "trireme/base/error.h"

namespace trireme::comm {

void require_timeout(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
  if (timeout >= std::chrono::milliseconds(1) && timeout <= kLongest) return;
  throw Error(ErrorKind::kInvalidArgument,
              str("[comm.init] a time-out of ", timeout.count(), " ms was asked for; it must be between 1 ms and ",
                  kLongest.count(), " ms (365 days). Every wait has an end: take a long one in place of none."));
}

Group make_group(const GroupOptions& options) {
  check_torch_version();
  require_timeout(options.timeout);
  const BackendEntry& entry = find_backend(options.backend);
  auto state = std::make_shared<GroupState>();
  state->name = options.name;
  state->backend_name = std::string(entry.name);
  state->global_ranks = options.global_ranks;
  state->timeout = options.timeout;
  state->meeting = options.meeting;
  state->key = options.key;
  state->trace = options.trace;
  const int size = static_cast<int>(options.global_ranks.size());

  BackendOptions backend;
  backend.meeting = options.meeting;
  backend.key = options.key;
  backend.rank = options.rank;
  backend.size = size;
  backend.communicator.group_name = options.name;
  backend.communicator.global_ranks = options.global_ranks;
  backend.communicator.timeout = options.timeout;
  if (size > 1 && !profile::is_watched()) backend.communicator.hang_after = profile::hang_limit_from_environment();
  backend.watch = options.watch;
  backend.trace = options.trace;
  c10::intrusive_ptr<c10d::Backend> made = entry.make(backend);

  state->process_group = c10::make_intrusive<c10d::ProcessGroup>(options.rank, size);
  state->process_group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, made);
  state->process_group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  state->process_group->setGroupName(options.name);
  state->host = dynamic_cast<HostBackend*>(made.get());
  return Group(std::move(state));
}

namespace {

/// Sees to it that a death among `members` of a group ends their wait for each other at once, whatever launcher there is.
MeetingWatch watch_members(const GroupState& state, std::vector<int> members, std::string purpose) {
  if (state.host == nullptr) return {};
  return [&communicator = state.host->communicator(), members = std::move(members), purpose = std::move(purpose)](
             const IsMissing& is_missing) { communicator.require_members(members, is_missing, purpose); };
}

Group make_world_of_one() {
  GroupOptions options;
  options.global_ranks = {0};
  options.meeting = std::make_shared<ThreadMeeting>();
  return make_group(options);
}

}  // namespace

Group::Group() : Group(make_world_of_one()) {}
Group::Group(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}

int Group::rank() const noexcept { return state_->process_group->getRank(); }
int Group::size() const noexcept { return state_->process_group->getSize(); }
const std::vector<int>& Group::global_ranks() const noexcept { return state_->global_ranks; }
const std::string& Group::name() const noexcept { return state_->name; }
std::chrono::milliseconds Group::timeout() const noexcept { return state_->timeout; }
const std::string& Group::backend_name() const noexcept { return state_->backend_name; }
const c10::intrusive_ptr<c10d::ProcessGroup>& Group::c10d() const noexcept { return state_->process_group; }

Group Group::subgroup(const std::vector<int>& ranks, const std::string& name) const {
  const auto fail = [&](const auto&... parts) {
    throw Error(ErrorKind::kInvalidArgument, str("[comm.subgroup] rank ", rank(), "/", size(), ": group '",
                                                 state_->name, "', ranks [", join(ranks), "]: ", parts...));
  };
  const std::set<int> unique(ranks.begin(), ranks.end());
  if (ranks.empty()) fail("a group needs at least one rank.");
  if (unique.size() != ranks.size()) fail("a rank is named twice; each may be there once.");
  if (*unique.begin() < 0 || *unique.rbegin() >= size()) fail("ranks must be in 0..", size() - 1, ".");
  const auto mine = std::find(ranks.begin(), ranks.end(), rank());
  if (mine == ranks.end()) fail("this rank is not among them; only members may call subgroup().");

  GroupOptions options;
  options.name = name.empty() ? str(state_->name, "/", join(ranks, "-")) : name;
  options.backend = state_->backend_name;
  options.rank = static_cast<int>(mine - ranks.begin());
  options.timeout = state_->timeout;
  options.meeting = state_->meeting;
  options.trace = state_->trace;
  for (const int member : ranks) options.global_ranks.push_back(state_->global_ranks[static_cast<size_t>(member)]);
  {
    // The same list may be asked for again; members count alike, so their keys agree without communication.
    const std::lock_guard lock(state_->mutex);
    const std::string list = join(ranks, "-");
    options.key = str(state_->key, "/", list, "#", state_->num_subgroups[list]++);
  }
  options.watch = watch_members(*state_, ranks, options.name);
  Group group = make_group(options);
  group.state_->keep_alive = state_->keep_alive;
  return group;
}

std::vector<Group> make_thread_groups(int size, std::chrono::milliseconds timeout, const std::string& trace_dir) {
  const auto meeting = std::make_shared<ThreadMeeting>();
  std::vector<Group> groups;
  for (int rank = 0; rank < size; ++rank) {
    GroupOptions options;
    options.global_ranks.resize(static_cast<size_t>(size));
    std::iota(options.global_ranks.begin(), options.global_ranks.end(), 0);
    options.rank = rank;
    options.timeout = timeout;
    options.meeting = meeting;
    options.trace = profile::open_collective_trace(
        {.path = trace_dir.empty() ? std::string{} : str(trace_dir, "/rank", rank, ".trace"), .rank = rank});
    groups.push_back(make_group(options));
  }
  return groups;
}

std::shared_ptr<Meeting> make_store_meeting(std::shared_ptr<rendezvous::Store> store,
                                            std::shared_ptr<rendezvous::Store> root) {
  return std::make_shared<StoreMeeting>(std::move(store), std::move(root));
}

SharedParts share_memory(const Group& group, size_t part_bytes) {
  GroupState& state = group.state();
  std::string key;
  {
    const std::lock_guard lock(state.mutex);
    key = str(state.key, "/parts#", state.num_subgroups["parts"]++);
  }
  CommunicatorOptions options;
  options.group_name = state.name;
  options.global_ranks = state.global_ranks;
  options.timeout = state.timeout;
  std::vector<int> all(state.global_ranks.size());
  std::iota(all.begin(), all.end(), 0);
  profile::CollectiveTrace* trace = group.size() > 1 && state.meeting->waits() ? state.trace.get() : nullptr;
  profile::GroupMeeting meeting(
      trace,
      trace == nullptr ? uint16_t{0} : trace->register_group(str(state.name, " (shared memory)"), state.global_ranks));
  SharedParts parts = state.meeting->share(key, group.rank(), group.size(), part_bytes, options,
                                           watch_members(state, std::move(all), state.name));
  meeting.done();
  return parts;
}

HostBackend& require_host(const Group& group, std::string_view what) {
  if (HostBackend* host = group.state().host) return *host;
  throw Error(ErrorKind::kUnsupported,
              str("[", what, "] rank ", group.rank(), "/", group.size(), ": group '", group.name(), "' uses backend '",
                  group.backend_name(), "'; the 'host' backend is required. Use init({.backend = \"host\"})."));
}

}  // namespace trireme::comm
