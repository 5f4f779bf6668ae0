// Large copies between processes in one pass: each rank reads its peers' tensors where they lie, between two phases. The first phase says
// where they lie; the second lets nobody go on before all have read.
//
// A copy through a slot moves every byte twice and takes a cache line across the cores twice; but it is ahead for small parts, since
// reading another process costs a system call and a page look-up per 4 KiB.

#include <cstring>

#include "comm/algorithms/window_communicator.h"

namespace trireme::comm {
namespace {

/// From here on reading directly was faster on two cores.
constexpr size_t kDirectReadBytes = 128 << 10;

}  // namespace

bool WindowCommunicator::direct_read_pays(size_t bytes_per_peer) const {
  return window_->reads_peers() && bytes_per_peer >= kDirectReadBytes &&
         static_cast<size_t>(size()) * sizeof(Offer) <= window_->slot_bytes();
}

void WindowCommunicator::write_offers(std::span<const Block> blocks) {
  for (size_t r = 0; r < blocks.size(); ++r) {
    const Offer offer = {reinterpret_cast<uint64_t>(blocks[r].data), blocks[r].bytes};
    std::memcpy(window_->slot(rank()) + r * sizeof(Offer), &offer, sizeof(offer));
  }
}

WindowCommunicator::Offer WindowCommunicator::offer_of(int sender, int receiver) const {
  Offer offer = {};
  std::memcpy(&offer, window_->slot(sender) + static_cast<size_t>(receiver) * sizeof(Offer), sizeof(offer));
  return offer;
}

void WindowCommunicator::read_offers(const CallInfo& info, std::span<const Block> offered,
                                     std::span<const Block> wanted) {
  // Everybody starts with its own and goes on with its neighbour, so that no memory is read by all at once.
  for (int step = 0; step < size(); ++step) {
    const int r = (rank() + step) % size();
    if (wanted[r].bytes == 0) continue;
    if (r == rank()) {
      if (wanted[r].data != offered[r].data) std::memcpy(wanted[r].data, offered[r].data, wanted[r].bytes);
    } else {
      window_->read_peer(r, offer_of(r, rank()).address, wanted[r].data, wanted[r].bytes, info);
    }
  }
  window_->flip();
  exchange(info, false);
}

}  // namespace trireme::comm
