// Memory that all ranks of a group see, with flags to take turns in it: the window that algorithms work on.
//
// Layout, offsets rounded up to 4 KiB; n ranks, S = slot_bytes, P = kPeerSlotBytes:
//   control        magic, version, sizes, poison cell, per rank: attached and departed flags
//   lanes          n x 2 x Lane: a flag and the header of the call that a phase begins
//   peer lanes     n x n x PeerLane: send/recv, [sender][receiver]
//   slots          n x 2 x S: what a rank publishes in a phase
//   peer slots     n x n x 2 x P
//   exchange       2 x S, only where n = 2 (pair_exchange.h)
// Everything starts as zeroes and is touched on first use only, so an unused part costs no memory.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/transport/call_info.h"
#include "comm/transport/communicator_options.h"
#include "comm/transport/shm/futex.h"
#include "comm/transport/shm/sync.h"
#include "comm/transport/wait_policy.h"
#include "trireme/base/error.h"

namespace trireme::comm {

using Flag = PhaseFlag<FutexAtomics>;

/// Flag and header share a cache line (two with label and fifth dim, which are compared as well), so that a small call costs one line per peer beside its data.
struct alignas(128) Lane {
  Flag flag;
  CallInfo header;
  uint64_t bytes_to_peer;  ///< all_to_all of two ranks: what the other should expect
};

/// One direction between two ranks: pieces are numbered from 1, two in flight.
struct alignas(128) PeerLane {
  Flag sent;
  CallInfo headers[2];
  alignas(128) Flag acknowledged;
};

inline constexpr size_t kPeerSlotBytes = 128 << 10;

/// A window's memory and who is behind it; made by transport/shm and transport/inproc.
class WindowMemory {
 public:
  virtual ~WindowMemory() = default;
  [[nodiscard]] virtual std::byte* data() = 0;
  /// Whether the process of this rank is there. Called about 20 times a second by a rank that waits.
  [[nodiscard]] virtual bool alive(int rank) = 0;
};

struct WindowShape {
  int num_ranks = 0;
  size_t slot_bytes = 0;
  [[nodiscard]] size_t total_bytes() const;
};

/// 256 KiB, so that two slots and what they are reduced into stay in a core's L2 cache; 1 MiB where ranks outnumber cores, since there
/// every phase costs a context switch. Decided by one rank for all.
[[nodiscard]] size_t default_slot_bytes(int num_ranks);

/// One rank's view. Thread safety: publish/await_all by one thread at a time; await and the poison functions by any.
class Window {
 public:
  Window(std::shared_ptr<WindowMemory> memory, WindowShape shape, int rank, CommunicatorOptions options);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return shape_.num_ranks; }
  [[nodiscard]] size_t slot_bytes() const noexcept { return shape_.slot_bytes; }
  [[nodiscard]] const CommunicatorOptions& options() const noexcept { return options_; }

  /// This phase's buffer of a rank.
  [[nodiscard]] std::byte* slot(int rank) const noexcept {
    return slots_ + (static_cast<size_t>(rank) * 2 + buffer_) * shape_.slot_bytes;
  }
  /// The two buffers that a pair hands to and fro: the one this rank fills now, and the one it reads now.
  [[nodiscard]] std::byte* exchange_to_fill() const noexcept {
    return exchange_ + ((static_cast<size_t>(rank_) + swaps_) & 1) * shape_.slot_bytes;
  }
  [[nodiscard]] std::byte* exchange_to_read() const noexcept {
    return exchange_ + ((static_cast<size_t>(rank_) + swaps_ + 1) & 1) * shape_.slot_bytes;
  }
  /// What was read is filled next; both ranks after the same phase.
  void swap_exchange() noexcept { swaps_ ^= 1; }

  /// To the other buffer; every rank after the same phase.
  void flip() noexcept { buffer_ ^= 1; }

  /// Begins the next phase: what this rank wrote into its slot is there for all. `header` on the first phase of a call.
  void publish(const CallInfo* header, uint64_t bytes_to_peer = 0) {
    Lane& lane = lane_of(rank_, ++phase_);
    if (header != nullptr) {
      lane.header = *header;
      lane.bytes_to_peer = bytes_to_peer;
    }
    lane.flag.publish(phase_);
  }
  /// Returns when every rank has published this phase.
  void await_all(const CallInfo& info) {
    for (int r = 0; r < size(); ++r) {
      Lane& lane = lane_of(r, phase_);
      if (!lane.flag.reached(phase_)) await_slowly(lane.flag, phase_, info, -1);
    }
  }
  /// After await_all on a call's first phase: poisons the group and throws when headers differ. Steps that part are told once, by the first rank.
  void check_headers(const CallInfo& mine) {
    bool steps_agree = true;
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const CallInfo& other = lane_of(r, phase_).header;
      if (!same_call(other, mine)) report_mismatch(mine);
      steps_agree = steps_agree && other.step == mine.step;
    }
    if (!steps_agree && steps_agreed_) [[unlikely]]
      tell_of_steps(mine);
    steps_agreed_ = steps_agree && mine.step > 0;
  }
  [[nodiscard]] uint64_t bytes_to_peer(int rank) const { return lane_of(rank, phase_).bytes_to_peer; }

  [[nodiscard]] PeerLane& peer_lane(int sender, int receiver) {
    return peer_lanes_[static_cast<size_t>(sender) * size() + receiver];
  }
  [[nodiscard]] std::byte* peer_slot(int sender, int receiver, uint32_t piece) const {
    return peer_slots_ + ((static_cast<size_t>(sender) * size() + receiver) * 2 + piece % 2) * kPeerSlotBytes;
  }
  /// Waits for a peer's flag in send/recv.
  void await(Flag& flag, uint32_t value, const CallInfo& info, int peer) {
    if (!flag.reached(value)) await_slowly(flag, value, info, peer);
  }

  /// Breaks the group with this error unless it is broken already; throws the error that broke it. [all ranks see it]
  [[noreturn]] void poison(ErrorKind kind, const std::string& message);
  void throw_if_broken() {
    if (poison_.claimed()) throw_broken();
  }
  /// Throws kPeerLost when this peer is gone. At most one system call per 10 ms.
  void require_alive(int peer, const CallInfo& info);

  /// As Communicator::require_members.
  void require_members(std::span<const int> members, const IsMissing& is_missing, const std::string& purpose);

  void leave() noexcept;

  /// Whether every rank may read every other's memory in one copy; the same answer on all ranks.
  [[nodiscard]] bool reads_peers() const noexcept { return reads_peers_; }
  /// Copies from a peer's own memory, which it must not change meanwhile. Throws (and breaks the group) when the peer is gone.
  void read_peer(int peer, uint64_t remote_address, void* local, size_t bytes, const CallInfo& info);

  /// The name of a member as users know it: its global rank.
  [[nodiscard]] int global_rank(int group_rank) const;
  /// A call of this group as users know it: with global ranks.
  [[nodiscard]] std::string told(const CallInfo& info) const { return describe(info, options_.global_ranks); }

  /// After the memory is there on this rank: all ranks call it, and it returns when all have. `watch` ends it at its deadline.
  void attach_and_wait(const MeetingWatch& watch);

 private:
  struct PoisonRecord {
    uint32_t kind;
    char text[3072];
  };
  struct alignas(128) RankState {
    Flag attached;  ///< 1: has the memory and has introduced itself below; 2: has tried to read every peer
    std::atomic<uint32_t> departed;
    // How others may read this process: a number at an address of its own proves that this pid is the right process to them.
    int32_t pid;
    uint64_t proof_address;
    uint64_t proof;
    uint32_t can_read_all;
  };
  struct Control {
    char magic[8];
    uint32_t version;
    uint32_t num_ranks;
    uint64_t slot_bytes;
    PoisonCell<FutexAtomics, PoisonRecord> poison;
  };
  friend struct WindowShape;
  struct Layout;

  [[nodiscard]] Lane& lane_of(int rank, uint32_t phase) const noexcept {
    return lanes_[static_cast<size_t>(rank) * 2 + phase % 2];
  }
  void await_slowly(Flag& flag, uint32_t value, const CallInfo& info, int peer);
  /// `flag` and `value`: what is awaited of `peer`, or null when any sign of it would come too late.
  void look_for_the_lost(const CallInfo& info, int peer, const Flag* flag = nullptr, uint32_t value = 0);
  [[noreturn]] void report_mismatch(const CallInfo& mine);
  [[nodiscard]] std::vector<int> late_ranks(int peer) const;  ///< group ranks
  /// What can be seen from here of a rank that has not come: its last call, and whether its process is stopped.
  [[nodiscard]] std::string last_seen(int rank) const;
  void tell_of_wait(const CallInfo& info, int peer, double waited_s) const;
  void tell_of_steps(const CallInfo& mine);
  [[noreturn]] void report_timeout(const CallInfo& info, int peer);
  [[noreturn]] void throw_broken();
  [[nodiscard]] std::string where(const CallInfo& info) const;
  void await_attached(uint32_t stage, const MeetingWatch& watch);

  std::shared_ptr<WindowMemory> memory_;
  WindowShape shape_;
  int rank_;
  const pid_t owner_ = getpid();
  CommunicatorOptions options_;
  WaitPolicy wait_policy_;

  RankState* ranks_;
  PoisonCell<FutexAtomics, PoisonRecord>& poison_;
  Lane* lanes_;
  PeerLane* peer_lanes_;
  std::byte* slots_;
  std::byte* peer_slots_;
  std::byte* exchange_;

  uint64_t proof_ = 0;  ///< what peers read to know that they read the right process
  bool reads_peers_ = false;
  unsigned swaps_ = 0;
  uint32_t phase_ = 0;
  unsigned buffer_ = 0;
  bool steps_agreed_ = false;  ///< in the last call, whose step was named
  bool steps_told_ = false;
  std::atomic<int64_t> last_alive_check_ns_{0};
};

}  // namespace trireme::comm
