// All-to-all with uneven parts on a window. A slot holds one part per receiver and is sent again until the longest pair is through; the
// sizes travel in the first phase, so that every rank knows how many phases there are and sender and receiver can be held to agree.

#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "comm/algorithms/window_communicator.h"

namespace trireme::comm {
namespace {

void copy_own(const Communicator::Block& in, const Communicator::Block& out) {
  if (in.bytes > 0 && in.data != out.data) std::memcpy(out.data, in.data, in.bytes);
}

}  // namespace

void WindowCommunicator::all_to_all(const CallInfo& info, std::span<const Block> ins, std::span<const Block> outs) {
  throw_if_broken();
  auto refuse = [&](int sender, size_t sent) {
    window_->poison(ErrorKind::kMismatch,
                    str("[comm.all_to_all] group '", options().group_name, "' call ", info.call, ": rank ",
                        window_->global_rank(sender), " sends ", sent, " bytes to rank ", window_->global_rank(rank()),
                        ", which expects ", outs[sender].bytes, " (", window_->told(info),
                        "). Input splits of the sender and output splits of the receiver must agree."));
  };
  if (ins[rank()].bytes != outs[rank()].bytes) refuse(rank(), ins[rank()].bytes);
  if (size() == 2 && !window_->reads_peers()) {
    const int peer = 1 - rank();
    copy_with_peer(info, ins[peer].data, ins[peer].bytes, outs[peer].data, outs[peer].bytes, [&] {
      if (window_->bytes_to_peer(peer) != outs[peer].bytes) refuse(peer, window_->bytes_to_peer(peer));
    });
    copy_own(ins[rank()], outs[rank()]);
    return;
  }
  const auto n = static_cast<size_t>(size());
  const size_t table_bytes = (n * sizeof(Offer) + 63) / 64 * 64;
  const size_t part_bytes =
      table_bytes < window_->slot_bytes() ? (window_->slot_bytes() - table_bytes) / n / 64 * 64 : 0;
  TRIREME_CHECK(part_bytes >= 64, "too many ranks for the slot size");

  auto part = [&](int owner, int receiver) {
    return window_->slot(owner) + table_bytes + static_cast<size_t>(receiver) * part_bytes;
  };
  size_t longest = 0;  // of my own pairs first, of all pairs after the first phase
  for (const Block& block : ins) longest = std::max(longest, block.bytes);
  // Where mine are long enough to be read directly, all will agree that they are: nothing of them need go into the slot.
  bool direct = direct_read_pays(longest);
  auto fill_parts = [&](size_t done) {
    for (int r = 0; r < size(); ++r) {
      if (r == rank() || done >= ins[r].bytes) continue;
      std::memcpy(part(rank(), r), static_cast<const std::byte*>(ins[r].data) + done,
                  std::min(part_bytes, ins[r].bytes - done));
    }
  };

  write_offers(ins);
  if (!direct) fill_parts(0);
  exchange(info, true);
  for (int sender = 0; sender < size(); ++sender) {
    for (int receiver = 0; receiver < size(); ++receiver)
      longest = std::max(longest, static_cast<size_t>(offer_of(sender, receiver).bytes));
    if (offer_of(sender, rank()).bytes != outs[sender].bytes) refuse(sender, offer_of(sender, rank()).bytes);
  }
  direct = direct_read_pays(longest);
  if (direct) {
    read_offers(info, ins, outs);
    return;
  }
  copy_own(ins[rank()], outs[rank()]);
  for (size_t done = 0;;) {
    for (int r = 0; r < size(); ++r) {
      if (r == rank() || done >= outs[r].bytes) continue;
      std::memcpy(static_cast<std::byte*>(outs[r].data) + done, part(r, rank()),
                  std::min(part_bytes, outs[r].bytes - done));
    }
    window_->flip();
    done += part_bytes;
    if (done >= longest) return;
    fill_parts(done);
    exchange(info, false);
  }
}

}  // namespace trireme::comm
