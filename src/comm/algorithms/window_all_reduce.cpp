// All-reduce on a window, over a scattered list of segments: what is copied into the slot is gathered on the way, and what is reduced
// lands in the segments directly, so a bucket of gradients needs no flat buffer of its own.

#include <algorithm>
#include <cstring>

#include "comm/algorithms/segment_cursor.h"
#include "comm/algorithms/window_communicator.h"

namespace trireme::comm {
namespace {

/// Up to here every rank reduces the whole chunk itself (one phase, n - 1 remote reads of it); above, ranks share the work (two phases,
/// about two remote reads). A pair goes another way: pair_exchange.h.
constexpr size_t kDirectBytes = 16 << 10;

struct Part {
  size_t begin, count;
};

/// The part of a chunk that rank r reduces, in whole cache lines.
Part part_of(size_t count, size_t element_bytes, int num_ranks, int rank) {
  const size_t line = 64 / element_bytes;
  const size_t lines = (count + line - 1) / line;
  const size_t share = (lines + static_cast<size_t>(num_ranks) - 1) / static_cast<size_t>(num_ranks) * line;
  const size_t begin = std::min(count, share * static_cast<size_t>(rank));
  return {begin, std::min(count - begin, share)};
}

}  // namespace

void WindowCommunicator::all_reduce(const CallInfo& info, std::span<const Segment> data) {
  throw_if_broken();
  reduce_staged(info, data, reduce_for(info), true);
}

void WindowCommunicator::reduce_staged(const CallInfo& info, std::span<const Segment> data, ReduceFunction reduce,
                                       bool first) {
  if (size() == 2) {
    reduce_with_peer(info, data, data, first);
    return;
  }
  const size_t element = size_of(info.dtype);
  const size_t total = SegmentCursor::total(data);
  const size_t chunk_elements = window_->slot_bytes() / element;
  const int n = size();

  SegmentCursor source(data, element);
  SegmentCursor target(data, element);
  size_t done = 0;
  do {
    const size_t chunk = std::min(total - done, chunk_elements);
    std::byte* mine = window_->slot(rank());
    source.advance(chunk, [&, at = mine](const std::byte* in, std::byte*, size_t count) mutable {
      std::memcpy(at, in, count * element);
      at += count * element;
    });
    exchange(info, first);

    if (n == 1 || chunk * element <= kDirectBytes) {
      size_t at = 0;
      target.advance(chunk, [&](const std::byte* in, std::byte* out, size_t count) {
        for (int r = 0; r < n; ++r) inputs_[r] = window_->slot(r) + at;
        // One's own part comes from where it was, which may be where the result goes; every element is read before it is written.
        inputs_[rank()] = in;
        reduce(out, inputs_.data(), n, count);
        at += count * element;
      });
    } else {
      // Each rank reduces its part in place in its own slot: nobody else reads that part of it before the next phase.
      const Part part = part_of(chunk, element, n, rank());
      for (int r = 0; r < n; ++r) inputs_[r] = window_->slot(r) + part.begin * element;
      reduce(mine + part.begin * element, inputs_.data(), n, part.count);
      exchange(info, false);
      for (int r = 0; r < n; ++r) {
        const Part theirs = part_of(chunk, element, n, r);
        const std::byte* from = window_->slot(r) + theirs.begin * element;
        target.advance(theirs.count, [&](const std::byte*, std::byte* out, size_t count) {
          std::memcpy(out, from, count * element);
          from += count * element;
        });
      }
    }
    window_->flip();
    done += chunk;
    first = false;
  } while (done < total);
}

}  // namespace trireme::comm
