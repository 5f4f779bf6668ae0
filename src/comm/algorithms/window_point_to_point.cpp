// Send and receive on a window. Each direction between two ranks has a lane of its own: two slots, a flag that the sender raises per piece
// and one that the receiver raises when it has copied it. A send returns when its last piece is in a slot, so small sends do not wait.

#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "comm/algorithms/window_communicator.h"

namespace trireme::comm {

void WindowCommunicator::require_peer(const CallInfo& info) const {
  if (info.root >= 0 && info.root < size() && info.root != rank()) return;
  throw Error(
      ErrorKind::kInvalidArgument,
      str("[comm.", to_string(info.op), "] rank ", window_->global_rank(rank()), ": group '", options().group_name,
          "' has ranks 0 to ", size() - 1, " and this is ", rank(), "; peer ", info.root, " is not another of them."));
}

void WindowCommunicator::require_same_message(const CallInfo& sent, const CallInfo& received, int sender,
                                              int receiver) {
  if (sent.call == received.call && sent.dtype == received.dtype && sent.count == received.count) return;
  window_->poison(ErrorKind::kMismatch,
                  str("[comm.recv] group '", options().group_name, "' call ", received.call, ": rank ",
                      window_->global_rank(sender), " called ", window_->told(sent), " (its call ", sent.call,
                      " to this peer), rank ", window_->global_rank(receiver), " called ", window_->told(received),
                      "; dtype and number of elements must match. Sends and receives of a pair are matched in order."));
}

void WindowCommunicator::send(const CallInfo& info, const void* data, size_t bytes) {
  throw_if_broken();
  require_peer(info);
  window_->require_alive(info.root, info);
  PeerLane& lane = window_->peer_lane(rank(), info.root);
  uint32_t& piece = sent_pieces_[info.root];
  size_t done = 0;
  do {
    ++piece;
    // Two slots: the one of two pieces ago must have been read.
    window_->await(lane.acknowledged, piece - 2, info, info.root);
    const size_t chunk = std::min(bytes - done, kPeerSlotBytes);
    if (done == 0) lane.headers[piece % 2] = info;
    if (chunk > 0)
      std::memcpy(window_->peer_slot(rank(), info.root, piece), static_cast<const std::byte*>(data) + done, chunk);
    lane.sent.publish(piece);
    done += chunk;
  } while (done < bytes);
}

void WindowCommunicator::recv(const CallInfo& info, void* data, size_t bytes) {
  throw_if_broken();
  require_peer(info);
  PeerLane& lane = window_->peer_lane(info.root, rank());
  uint32_t& piece = received_pieces_[info.root];
  size_t done = 0;
  do {
    ++piece;
    window_->await(lane.sent, piece, info, info.root);
    if (done == 0) require_same_message(lane.headers[piece % 2], info, info.root, rank());
    const size_t chunk = std::min(bytes - done, kPeerSlotBytes);
    if (chunk > 0)
      std::memcpy(static_cast<std::byte*>(data) + done, window_->peer_slot(info.root, rank(), piece), chunk);
    lane.acknowledged.publish(piece);
    done += chunk;
  } while (done < bytes);
}

}  // namespace trireme::comm
