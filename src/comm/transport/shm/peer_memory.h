// Reads another process's memory in one copy (process_vm_readv), where the kernel lets us.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::comm {

/// Copies `bytes` from `remote_address` of process `pid` to `local`. False where that is not allowed, or the process or the address is gone;
/// then `local` holds anything. Allowed for processes of one user unless Yama's ptrace_scope or a container forbids it.
[[nodiscard]] bool read_peer_memory(int pid, uint64_t remote_address, void* local, size_t bytes) noexcept;

}  // namespace trireme::comm
