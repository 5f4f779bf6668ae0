#include "comm/transport/shm/shm_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/str.h"
#include "comm/algorithms/window_communicator.h"
#include "comm/transport/mapping.h"
#include "comm/transport/shm/unix_socket.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr milliseconds kSlice{50};
/// How long the launcher's words are waited for when a peer broke a connection. It names a death within moments.
constexpr milliseconds kNoticeLimit{500};
constexpr const char* kInvitationKey = "shm";

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
  ShmMemory(FileDescriptor file, size_t bytes, int rank) : file_(std::move(file)), mapping_(file_.get(), bytes) {
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

  FileDescriptor file_;
  Mapping mapping_;
};

FileDescriptor create_sealed(size_t bytes, const std::string& group_name) {
  FileDescriptor file(
      memfd_create(str("trireme-", group_name).substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
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

int global_rank(const CommunicatorOptions& options, int rank) {
  return options.global_ranks.empty() ? rank : options.global_ranks.at(static_cast<size_t>(rank));
}

[[noreturn]] void throw_lost(int rank, const CommunicatorOptions& options, const std::string& notice) {
  throw Error(ErrorKind::kPeerLost, str("[comm.init] rank ", global_rank(options, rank), ": group '",
                                        options.group_name, "': ", notice, " while the group was being made."));
}

void throw_if_noticed(rendezvous::Store& root, int rank, const CommunicatorOptions& options) {
  const std::string key(rendezvous::kDeathNoticeKey);
  if (root.check({&key, 1})) throw_lost(rank, options, root.get(key, kSlice));
}

// Rank 0's half: hands the file to size - 1 peers.
void serve_file(rendezvous::Store& store, rendezvous::Store& root, int rank, int size,
                const CommunicatorOptions& options, const FileDescriptor& file, size_t announced) {
  const UnixListener listener = listen_on_abstract_name();
  const std::string token = random_token();
  store.set(kInvitationKey, str(listener.name, ' ', token, ' ', announced));
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  for (int served = 1; served < size;) {
    if (const FileDescriptor peer = accept_peer(listener, token, kSlice)) {
      // One that hung up before it was served has died; the launcher says so, and until then others are served.
      if (send_descriptor(peer, file.get())) {
        ++served;
        continue;
      }
    }
    throw_if_noticed(root, rank, options);
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(ErrorKind::kTimeout,
                  str("[comm.init] rank ", global_rank(options, rank), ": group '", options.group_name, "': only ",
                      served, " of ", size, " ranks came within ",
                      std::chrono::duration<double>(options.timeout).count(), " s. See what the others do."));
    }
  }
}

std::string notice_within(rendezvous::Store& root, milliseconds limit) {
  try {
    return root.get(rendezvous::kDeathNoticeKey, limit);
  } catch (const Error&) {  // nobody died as far as is known, or the store has gone too
    return {};
  }
}

// The others' half. The first rank breaks the connection when it dies, and when it gives up because another has died: the launcher knows
// who that is.
FileDescriptor fetch_file(rendezvous::Store& root, const Invitation& invitation, int rank,
                          const CommunicatorOptions& options) {
  try {
    const FileDescriptor peer = connect_to_peer(invitation.name, invitation.token);
    return receive_descriptor(peer, options.timeout);
  } catch (const Error& error) {
    const std::string notice =
        notice_within(root, error.kind() == ErrorKind::kTimeout ? milliseconds{0} : kNoticeLimit);
    if (!notice.empty()) throw_lost(rank, options, notice);
    throw Error(error.kind(), str("[comm.init] rank ", global_rank(options, rank), ": group '", options.group_name,
                                  "': no shared memory from rank ", global_rank(options, 0), ": ", error.what()));
  }
}

}  // namespace

ShmMeeting meet_in_shared_memory(rendezvous::Store& store, rendezvous::Store& root, int rank, int size,
                                 const CommunicatorOptions& options) {
  if (rank == 0) {
    const WindowShape shape = {.num_ranks = size, .slot_bytes = default_slot_bytes(size)};
    FileDescriptor file = create_sealed(shape.total_bytes(), options.group_name);
    serve_file(store, root, rank, size, options, file, shape.slot_bytes);
    return {std::make_shared<ShmMemory>(std::move(file), shape.total_bytes(), rank), shape};
  }
  const Invitation invitation = parse_invitation(
      rendezvous::get_unless_dead(store, root, kInvitationKey, options.timeout, "comm.init"), size_t{1} << 30);
  const WindowShape shape = {.num_ranks = size, .slot_bytes = invitation.bytes};
  FileDescriptor file = fetch_file(root, invitation, rank, options);
  check_received(file.get(), shape.total_bytes());
  return {std::make_shared<ShmMemory>(std::move(file), shape.total_bytes(), rank), shape};
}

SharedParts share_memory(rendezvous::Store& store, rendezvous::Store& root, int rank, int size, size_t part_bytes,
                         const CommunicatorOptions& options) {
  SharedParts parts;
  parts.part_bytes = (part_bytes + 4095) / 4096 * 4096;
  const size_t total = parts.part_bytes * static_cast<size_t>(size);
  FileDescriptor file;
  if (rank == 0) {
    file = create_sealed(total, options.group_name);
    serve_file(store, root, rank, size, options, file, total);
  } else {
    const Invitation invitation = parse_invitation(
        rendezvous::get_unless_dead(store, root, kInvitationKey, options.timeout, "comm.init"), SIZE_MAX);
    file = fetch_file(root, invitation, rank, options);
    check_received(file.get(), total);
  }
  parts.memory = std::make_shared<ShmMemory>(std::move(file), total, rank);
  parts.base = parts.memory->data();
  return parts;
}

std::unique_ptr<Communicator> make_shm_communicator(rendezvous::Store& store, rendezvous::Store& root, int rank,
                                                    int size, CommunicatorOptions options) {
  ShmMeeting meeting = meet_in_shared_memory(store, root, rank, size, options);
  auto window = std::make_unique<Window>(std::move(meeting.memory), meeting.shape, rank, std::move(options));
  window->attach_and_wait([&] { throw_if_noticed(root, rank, window->options()); });
  return std::make_unique<WindowCommunicator>(std::move(window));
}

}  // namespace trireme::comm
