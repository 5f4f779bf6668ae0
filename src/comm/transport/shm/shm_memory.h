// A window's memory for ranks that are processes of one host: a sealed memfd that the group's first rank creates and hands to the others
// over a Unix socket. Nothing has a name in a file system, so nothing stays behind whatever dies, and the size of /dev/shm does not matter.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/transport/shared_parts.h"
#include "comm/transport/window.h"
#include "trireme/rendezvous/store.h"

namespace trireme::comm {

// Security  The socket is abstract with a random name; both sides check the other's user id (SO_PEERCRED) and a random token from the store;
//           the receiver checks size and seals before it maps, so a peer cannot shrink the file under it (SIGBUS).
// The window itself: make_shm_communicator() in comm/algorithms/communicator.h.

/// Memory beside a window, one part per rank, mapped by all; made and handed over in the same way. `part_bytes` must be equal on all
/// ranks (the receiver checks the size it gets) and is rounded up to pages. Returns when all have it. [collective, blocking]
/// Errors  as make_shm_communicator.
[[nodiscard]] SharedParts share_memory(rendezvous::Store& store, rendezvous::Store& root, int rank, int size,
                                       size_t part_bytes, const CommunicatorOptions& options,
                                       const MeetingWatch& watch = {});

}  // namespace trireme::comm
