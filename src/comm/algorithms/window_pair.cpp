// What the collectives of a pair of ranks take out of each other's buffers: see pair_exchange.h.

#include "comm/algorithms/pair_exchange.h"
#include "comm/algorithms/reduce_kernels.h"
#include "comm/algorithms/segment_cursor.h"
#include "comm/algorithms/window_communicator.h"

namespace trireme::comm {
namespace {

class SegmentSource {
 public:
  SegmentSource(std::span<const Segment> segments, size_t element_bytes) : cursor_(segments, element_bytes) {}
  template <typename Visit>
  void advance(size_t count, Visit&& visit) {
    cursor_.advance(count, [&](const std::byte* in, std::byte*, size_t run) { visit(in, run); });
  }

 private:
  SegmentCursor cursor_;
};

/// Rank order: the first operand is rank 0's, whichever of the two this is.
struct TakeReduced {
  ReduceFunction reduce;
  RefillFunction reduce_and_refill;
  bool mine_first;

  void operator()(const std::byte* own, std::byte* out, std::byte* slot, size_t count) const {
    const void* in[] = {mine_first ? own : slot, mine_first ? slot : own};
    reduce(out, in, 2, count);
  }
  void refill(const std::byte* own, std::byte* out, std::byte* slot, const std::byte* next, size_t count) const {
    const void* in[] = {mine_first ? own : slot, mine_first ? slot : own};
    reduce_and_refill(out, in, count, slot, next);
  }
};

struct TakeCopied {
  void operator()(const std::byte*, std::byte* out, std::byte* slot, size_t bytes) const {
    std::memcpy(out, slot, bytes);
  }
  void refill(const std::byte*, std::byte* out, std::byte* slot, const std::byte* next, size_t bytes) const {
    copy_and_refill(out, slot, next, bytes);
  }
};

}  // namespace

void WindowCommunicator::reduce_with_peer(const CallInfo& info, std::span<const Segment> outgoing,
                                          std::span<const Segment> incoming, bool first) {
  const size_t element = size_of(info.dtype);
  const TakeReduced take = {reduce_for(info), reduce_refill_function(info.dtype, info.reduce), rank() == 0};
  PairExchange exchange(*window_, element, SegmentSource(outgoing, element), SegmentCursor(incoming, element), take);
  exchange.run(info, first, SegmentCursor::total(outgoing), SegmentCursor::total(incoming), [] {});
}

void WindowCommunicator::copy_with_peer(const CallInfo& info, const void* out_data, size_t out_bytes, void* in_data,
                                        size_t in_bytes, const std::function<void()>& accept) {
  const Segment outgoing[] = {{out_data, nullptr, out_bytes}};
  const Segment incoming[] = {{nullptr, in_data, in_bytes}};
  PairExchange exchange(*window_, 1, SegmentSource(outgoing, 1), SegmentCursor(incoming, 1), TakeCopied{});
  exchange.run(info, true, out_bytes, in_bytes, accept);
}

}  // namespace trireme::comm
