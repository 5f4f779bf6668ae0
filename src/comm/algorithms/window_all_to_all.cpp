// All-to-all with uneven parts on a window. A slot holds one part per receiver and is sent again until the longest pair is through; the
// sizes travel in the first phase, so that every rank knows how many phases there are and sender and receiver can be held to agree.

#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "comm/algorithms/window_communicator.h"

namespace trireme::comm {

void WindowCommunicator::all_to_all(const CallInfo& info, std::span<const Block> ins, std::span<const Block> outs) {
  throw_if_broken();
  const auto n = static_cast<size_t>(size());
  const size_t table_bytes = (n * sizeof(uint64_t) + 63) / 64 * 64;
  const size_t part_bytes = (window_->slot_bytes() - table_bytes) / n / 64 * 64;
  TRIREME_CHECK(part_bytes >= 64, "too many ranks for the slot size");

  auto part = [&](int owner, int receiver) {
    return window_->slot(owner) + table_bytes + static_cast<size_t>(receiver) * part_bytes;
  };
  auto announced = [&](int sender, int receiver) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, window_->slot(sender) + static_cast<size_t>(receiver) * sizeof(uint64_t), sizeof(bytes));
    return static_cast<size_t>(bytes);
  };

  size_t longest = 0;
  size_t done = 0;
  bool first = true;
  do {
    for (int r = 0; r < size(); ++r) {
      if (first) {
        const uint64_t bytes = ins[r].bytes;
        std::memcpy(window_->slot(rank()) + static_cast<size_t>(r) * sizeof(uint64_t), &bytes, sizeof(bytes));
      }
      if (r == rank() || done >= ins[r].bytes) continue;
      std::memcpy(part(rank(), r), static_cast<const std::byte*>(ins[r].data) + done,
                  std::min(part_bytes, ins[r].bytes - done));
    }
    exchange(info, first);
    if (first) {
      for (int sender = 0; sender < size(); ++sender) {
        for (int receiver = 0; receiver < size(); ++receiver) longest = std::max(longest, announced(sender, receiver));
        if (announced(sender, rank()) != outs[sender].bytes) {
          window_->poison(
              ErrorKind::kMismatch,
              str("[comm.all_to_all] group '", options().group_name, "' call ", info.call, ": rank ",
                  window_->global_rank(sender), " sends ", announced(sender, rank()), " bytes to rank ",
                  window_->global_rank(rank()), ", which expects ", outs[sender].bytes, " (", describe(info),
                  "). Input splits of the sender and output splits of the receiver must agree."));
        }
      }
      if (ins[rank()].bytes > 0) std::memcpy(outs[rank()].data, ins[rank()].data, ins[rank()].bytes);
    }
    for (int r = 0; r < size(); ++r) {
      if (r == rank() || done >= outs[r].bytes) continue;
      std::memcpy(static_cast<std::byte*>(outs[r].data) + done, part(r, rank()),
                  std::min(part_bytes, outs[r].bytes - done));
    }
    window_->flip();
    done += part_bytes;
    first = false;
  } while (done < longest);
}

}  // namespace trireme::comm
