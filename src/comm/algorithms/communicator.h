// Collectives on bytes among the ranks of one group, without LibTorch. Blocking: each call returns when this rank's
// part is done.
//
// n is size(), S the bytes that one rank passes in. Ranks call in the same order; CallQueue sees to that and to which
// thread executes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/transport/call_info.h"
#include "comm/transport/communicator_options.h"
#include "comm/transport/shared_parts.h"
#include "trireme/rendezvous/store.h"

namespace trireme::comm {

/// One contiguous piece of a scattered tensor list. `in` may equal `out`; otherwise they must not overlap.
struct Segment {
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;  ///< elements
};

/// Purpose       Moves and reduces bytes among n ranks.
/// Invariants    Every element of a reduction is combined in rank order on every rank (docs/numerics.md).
///               After the first error the group is unusable and every later call throws that error again.
/// Thread safety One collective at a time; each (peer, direction) of send/recv may run beside it on a thread of its own.
/// Errors        kMismatch   ranks called different things; on every rank, with both calls.
///               kPeerLost   a rank died or left; names it.
///               kTimeout    names the ranks that are late.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const CommunicatorOptions& options() const = 0;

  /// Cost: n <= 2 or small: one phase, S written to shared memory, (n-1) S read. Else two phases, about 2 S read.
  virtual void all_reduce(const CallInfo& info, std::span<const Segment> data) = 0;

  /// As all_reduce, bit for bit. A segment with `in` == `out` that lies in its rank's part of `shared` on EVERY rank is reduced where it
  /// lies, others are staged; ranks tell each other in the call's first phase. When it returns, no peer reads or writes this rank's part
  /// any more. Ranks must pass equally many segments of equal counts.
  /// Cost: in place 2 phases, S read and S written per rank whatever n.
  virtual void all_reduce_shared(const CallInfo& info, std::span<const Segment> data, const SharedParts& shared) = 0;

  /// `data` holds `bytes` bytes on every rank.
  virtual void broadcast(const CallInfo& info, void* data, size_t bytes) = 0;

  /// outs[r] receives rank r's `bytes` bytes; they need not be adjacent. `in` may be outs[rank()].
  virtual void all_gather(const CallInfo& info, const void* in, std::span<void* const> outs, size_t bytes) = 0;

  /// ins[r] is this rank's contribution of `count` elements for rank r; `out` receives the reduced part. `out` may be
  /// ins[rank()].
  virtual void reduce_scatter(const CallInfo& info, std::span<const void* const> ins, void* out, size_t count) = 0;

  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
  };
  /// Sends ins[r] to rank r, receives outs[r] from it. Sizes may differ by pair (0 too), and must agree between sender
  /// and receiver (else kMismatch with both). ins and outs must not overlap.
  virtual void all_to_all(const CallInfo& info, std::span<const Block> ins, std::span<const Block> outs) = 0;

  virtual void barrier(const CallInfo& info) = 0;

  /// Matched in order per (sender, receiver). info.root is the peer; sizes and dtypes must agree, else kMismatch on
  /// both.
  virtual void send(const CallInfo& info, const void* data, size_t bytes) = 0;
  virtual void recv(const CallInfo& info, void* data, size_t bytes) = 0;

  /// Throws the group's error if there is one. Cheap: one load.
  virtual void throw_if_broken() = 0;

  /// For a wait for members that is no call of this group: throws its error if there is one, and breaks it with kPeerLost when one of
  /// `members` died, or left while `is_missing` (by index into members). `purpose` for the message. [any thread]
  virtual void require_members(std::span<const int> members, const IsMissing& is_missing,
                               const std::string& purpose) = 0;

  /// Breaks the group for all ranks: pending calls, this rank's own too, and later ones throw kPeerLost with `why` within 0.1 s.
  virtual void abort(const std::string& why) noexcept = 0;

  /// Ends this rank's membership: peers that still wait for it are told at once. Called by the destructor too.
  virtual void leave() noexcept = 0;
};

/// Ranks are processes of this host that meet in `store` (which must be fresh for this group: use a prefix store).
/// `root` is the launcher's store without prefix, for death notices. [collective, blocking]
/// Errors  kTimeout naming the ranks that did not come, the same on every rank; kPeerLost; kMismatch; kIo.
[[nodiscard]] std::unique_ptr<Communicator> make_shm_communicator(rendezvous::Store& store, rendezvous::Store& root,
                                                                  int rank, int size, CommunicatorOptions options,
                                                                  const MeetingWatch& watch = {});

/// n ranks as threads of this process on one mapping; element r belongs to rank r.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_inproc_communicators(int size,
                                                                                   const CommunicatorOptions& options);

}  // namespace trireme::comm
