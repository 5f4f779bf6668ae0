#include "comm/transport/shm/peer_memory.h"

#include <sys/uio.h>

#include <algorithm>

namespace trireme::comm {

bool read_peer_memory(int pid, uint64_t remote_address, void* local, size_t bytes) noexcept {
  auto* to = static_cast<std::byte*>(local);
  while (bytes > 0) {
    // One call moves at most 2 GiB less a page.
    const size_t part = std::min(bytes, size_t{1} << 30);
    const iovec here = {.iov_base = to, .iov_len = part};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process is a number here
    const iovec there = {.iov_base = reinterpret_cast<void*>(remote_address), .iov_len = part};
    const ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got <= 0) return false;
    to += got;
    remote_address += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace trireme::comm
