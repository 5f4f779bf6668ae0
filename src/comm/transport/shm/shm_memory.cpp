#include "comm/transport/shm/shm_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/str.h"
#include "comm/algorithms/window_communicator.h"
#include "comm/transport/mapping.h"
#include "comm/transport/shm/gathering.h"
#include "comm/transport/shm/unix_socket.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr milliseconds kSlice{50};
constexpr const char* kInvitationKey = "shm";
constexpr const char* kCompleteKey = "complete";

struct ShmMeeting {
  std::shared_ptr<WindowMemory> memory;
  WindowShape shape;
};

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::kIo, str("[comm.shm] ", what, " failed: ", std::strerror(errno),
                                  errno == EMFILE ? ". Raise 'ulimit -n' or close files." : "."));
}

/// Purpose    The memory, and who of the group lives: each rank holds a write lock on byte r of the file, which the kernel drops when
///            the process ends, however it ends. That needs one descriptor per group, works across PID namespaces and cannot mistake
///            a new process for an old one, as PIDs can.
/// Caution    POSIX record locks also go when the process closes any descriptor of the file: this one is the only one, and stays open.
class ShmMemory final : public WindowMemory {
 public:
  ShmMemory(Fd file, size_t bytes, int rank) : file_(std::move(file)), mapping_(file_.get(), bytes) {
    struct flock lock = lock_on(rank, F_WRLCK);
    if (fcntl(file_.get(), F_SETLK, &lock) != 0) fail(str("locking byte ", rank, " of the shared memory"));
  }

  std::byte* data() override { return mapping_.data(); }

  bool alive(int rank) override {
    struct flock lock = lock_on(rank, F_WRLCK);
    // If it cannot be asked, assume the best: the time-out still ends the wait.
    return fcntl(file_.get(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  }

 private:
  static struct flock lock_on(int rank, short type) {
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
  }

  Fd file_;
  Mapping mapping_;
};

Fd create_sealed(size_t bytes, const std::string& group_name) {
  Fd file(memfd_create(str("trireme-", group_name).substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) fail("memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) fail(str("sizing ", bytes, " bytes of shared memory"));
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) fail("sealing the shared memory");
  return file;
}

void check_received(int file, size_t bytes) {
  struct stat status = {};
  const int seals = fcntl(file, F_GET_SEALS);
  if (fstat(file, &status) != 0 || seals < 0 || (seals & kSeals) != kSeals ||
      static_cast<size_t>(status.st_size) != bytes) {
    throw Error(ErrorKind::kIo, str("[comm.shm] what the group's first rank sent is no sealed shared memory of ", bytes,
                                    " bytes; all ranks must run the same build of Trireme."));
  }
}

// "name token bytes", as rank 0 puts it into the store; bytes is what decides the size of the memory.
struct Invitation {
  std::string name;
  std::string token;
  size_t bytes = 0;
};

Invitation parse_invitation(const std::string& text, size_t most) {
  Invitation invitation;
  std::istringstream in(text);
  if (!(in >> invitation.name >> invitation.token >> invitation.bytes) || invitation.name.size() > 100 ||
      invitation.bytes < 4096 || invitation.bytes > most) {
    throw Error(
        ErrorKind::kIo,
        "[comm.shm] the store holds no valid invitation to the group; all ranks must run the same build of Trireme.");
  }
  return invitation;
}

bool everybody(int /*rank*/) { return true; }

// Where a peer's socket fails, the peer most likely died or gave up; that shows within moments, and then says more than the failure does.
template <typename Step>
auto with_explanation(Gathering& gathering, Step&& step) {
  try {
    return step();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo && error.kind() != ErrorKind::kPeerLost) throw;
    gathering.await_cause();
    throw;
  }
}

// Rank 0's half: hands the file to size - 1 peers.
void serve_file(rendezvous::Store& store, int size, Gathering& gathering, const Fd& file, size_t announced) {
  const UnixListener listener = listen_on_abstract_name();
  const std::string token = random_token();
  store.set(kInvitationKey, str(listener.name, ' ', token, ' ', announced));
  for (int served = 1; served < size;) {
    const Fd peer = accept_peer(listener, token, kSlice);
    if (peer && send_descriptor(peer, file.get())) {
      ++served;
    } else {
      gathering.look(everybody);  // nobody has all before rank 0 has; one that hung up before it was served has died
    }
  }
}

// The others' half.
Fd fetch_file(const Invitation& invitation, Gathering& gathering) {
  return with_explanation(gathering, [&] {
    const Fd peer = connect_to_peer(invitation.name, invitation.token);
    while (true) {
      try {
        return receive_descriptor(peer, kSlice);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kTimeout) throw;
      }
      gathering.look(everybody);
    }
  });
}

ShmMeeting meet_in_shared_memory(rendezvous::Store& store, int rank, int size, const CommunicatorOptions& options,
                                 Gathering& gathering) {
  if (rank == 0) {
    const WindowShape shape = {.num_ranks = size, .slot_bytes = default_slot_bytes(size)};
    Fd file = create_sealed(shape.total_bytes(), options.group_name);
    serve_file(store, size, gathering, file, shape.slot_bytes);
    return {std::make_shared<ShmMemory>(std::move(file), shape.total_bytes(), rank), shape};
  }
  const Invitation invitation = parse_invitation(gathering.await_key(kInvitationKey), size_t{1} << 30);
  const WindowShape shape = {.num_ranks = size, .slot_bytes = invitation.bytes};
  Fd file = fetch_file(invitation, gathering);
  check_received(file.get(), shape.total_bytes());
  return {std::make_shared<ShmMemory>(std::move(file), shape.total_bytes(), rank), shape};
}

Fd meet_for_parts(rendezvous::Store& store, int rank, int size, size_t total, const CommunicatorOptions& options,
                  Gathering& gathering) {
  if (rank == 0) {
    Fd file = create_sealed(total, options.group_name);
    serve_file(store, size, gathering, file, total);
    store.set(kCompleteKey, "1");
    return file;
  }
  Fd file = fetch_file(parse_invitation(gathering.await_key(kInvitationKey), SIZE_MAX), gathering);
  check_received(file.get(), total);
  // So that nobody goes on, and perhaps ends in good order, while rank 0 still waits for others.
  static_cast<void>(gathering.await_key(kCompleteKey));
  return file;
}

}  // namespace

SharedParts share_memory(rendezvous::Store& store, rendezvous::Store& root, int rank, int size, size_t part_bytes,
                         const CommunicatorOptions& options, const MeetingWatch& watch) {
  SharedParts parts;
  parts.part_bytes = (part_bytes + 4095) / 4096 * 4096;
  const size_t total = parts.part_bytes * static_cast<size_t>(size);
  Gathering gathering(store, root, rank, size, options, watch);
  Fd file = gather(gathering, [&] { return meet_for_parts(store, rank, size, total, options, gathering); });
  parts.memory = std::make_shared<ShmMemory>(std::move(file), total, rank);
  parts.base = parts.memory->data();
  return parts;
}

std::unique_ptr<Communicator> make_shm_communicator(rendezvous::Store& store, rendezvous::Store& root, int rank,
                                                    int size, CommunicatorOptions options, const MeetingWatch& watch) {
  Gathering gathering(store, root, rank, size, options, watch);
  return gather(gathering, [&] {
    ShmMeeting meeting = meet_in_shared_memory(store, rank, size, options, gathering);
    auto window = std::make_unique<Window>(std::move(meeting.memory), meeting.shape, rank, options);
    window->attach_and_wait([&](const IsMissing& is_missing) { gathering.look(is_missing); });
    return std::unique_ptr<Communicator>(std::make_unique<WindowCommunicator>(std::move(window)));
  });
}

}  // namespace trireme::comm
