#include "comm/meeting.h"

#include "comm/transport/inproc/inproc_memory.h"
#include "comm/transport/shm/shm_memory.h"
#include "trireme/base/error.h"

namespace trireme::comm {

std::unique_ptr<Communicator> ThreadMeeting::meet(const std::string& key, int rank, int size,
                                                  CommunicatorOptions options, const MeetingWatch& /*watch*/) {
  const std::lock_guard lock(mutex_);
  Members& members = groups_[key];
  if (members.num_taken == 0) members.communicators = make_inproc_communicators(size, options);
  std::unique_ptr<Communicator> mine = std::move(members.communicators.at(static_cast<size_t>(rank)));
  TRIREME_CHECK(mine != nullptr, "a rank thread took its part of a group twice");
  if (++members.num_taken == size) groups_.erase(key);
  return mine;
}

std::unique_ptr<Communicator> StoreMeeting::meet(const std::string& key, int rank, int size,
                                                 CommunicatorOptions options, const MeetingWatch& watch) {
  if (size == 1) return std::move(make_inproc_communicators(1, options).front());
  const std::shared_ptr<rendezvous::Store> prefixed = rendezvous::make_prefix_store("trireme/group/" + key, store_);
  return make_shm_communicator(*prefixed, *root_, rank, size, std::move(options), watch);
}

SharedParts ThreadMeeting::share(const std::string& key, int /*rank*/, int size, size_t part_bytes,
                                 CommunicatorOptions /*options*/, const MeetingWatch& /*watch*/) {
  const std::lock_guard lock(mutex_);
  Parts& parts = parts_[key];
  if (parts.num_taken == 0) parts.shared = make_inproc_parts(size, part_bytes);
  SharedParts mine = parts.shared;
  if (++parts.num_taken == size) parts_.erase(key);
  return mine;
}

SharedParts StoreMeeting::share(const std::string& key, int rank, int size, size_t part_bytes,
                                CommunicatorOptions options, const MeetingWatch& watch) {
  if (size == 1) return make_inproc_parts(1, part_bytes);
  const std::shared_ptr<rendezvous::Store> prefixed = rendezvous::make_prefix_store("trireme/parts/" + key, store_);
  return share_memory(*prefixed, *root_, rank, size, part_bytes, options, watch);
}

}  // namespace trireme::comm
