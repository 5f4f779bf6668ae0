#include "comm/algorithms/window_communicator.h"

#include <cstring>

#include "base/str.h"
#include "comm/transport/inproc/inproc_memory.h"

namespace trireme::comm {

WindowCommunicator::WindowCommunicator(std::unique_ptr<Window> window)
    : window_(std::move(window)),
      inputs_(static_cast<size_t>(window_->size())),
      offered_(static_cast<size_t>(window_->size())),
      wanted_(static_cast<size_t>(window_->size())),
      sent_pieces_(static_cast<size_t>(window_->size())),
      received_pieces_(static_cast<size_t>(window_->size())) {}

WindowCommunicator::~WindowCommunicator() = default;

void WindowCommunicator::abort(const std::string& why) noexcept {
  try {
    window_->poison(ErrorKind::kPeerLost, str("[comm] group '", options().group_name, "': rank ",
                                              window_->global_rank(rank()), " gave up: ", why));
  } catch (const Error&) {
    // poison() throws what broke the group; here the group being broken is the aim.
  }
}

void WindowCommunicator::exchange(const CallInfo& info, bool first_phase) {
  window_->publish(first_phase ? &info : nullptr);
  window_->await_all(info);
  if (first_phase) window_->check_headers(info);
}

ReduceFunction WindowCommunicator::reduce_for(const CallInfo& info) const {
  const ReduceFunction reduce = reduce_function(info.dtype, info.reduce);
  if (reduce == nullptr) {
    throw Error(ErrorKind::kUnsupported,
                str("[comm.", to_string(info.op), "] rank ", window_->global_rank(rank()), ": ", to_string(info.reduce),
                    " of ", to_string(info.dtype), " has no meaning; convert to a number first."));
  }
  return reduce;
}

void WindowCommunicator::barrier(const CallInfo& info) {
  throw_if_broken();
  exchange(info, true);
}

void WindowCommunicator::broadcast(const CallInfo& info, void* data, size_t bytes) {
  throw_if_broken();
  auto* bytes_of_mine = static_cast<std::byte*>(data);
  size_t done = 0;
  bool first = true;
  do {
    const size_t chunk = std::min(bytes - done, window_->slot_bytes());
    if (rank() == info.root && chunk > 0) std::memcpy(window_->slot(rank()), bytes_of_mine + done, chunk);
    exchange(info, first);
    if (rank() != info.root && chunk > 0) std::memcpy(bytes_of_mine + done, window_->slot(info.root), chunk);
    window_->flip();
    done += chunk;
    first = false;
  } while (done < bytes);
}

void WindowCommunicator::all_gather(const CallInfo& info, const void* in, std::span<void* const> outs, size_t bytes) {
  throw_if_broken();
  if (direct_read_pays(bytes)) {
    for (int r = 0; r < size(); ++r) {
      offered_[r] = {const_cast<void*>(in), bytes};
      wanted_[r] = {outs[r], bytes};
    }
    write_offers(offered_);
    exchange(info, true);
    read_offers(info, offered_, wanted_);
    return;
  }
  if (size() == 2) {
    copy_with_peer(info, in, bytes, outs[1 - rank()], bytes, [] {});
    if (bytes > 0 && outs[rank()] != in) std::memcpy(outs[rank()], in, bytes);
    return;
  }
  const auto* mine = static_cast<const std::byte*>(in);
  size_t done = 0;
  bool first = true;
  do {
    const size_t chunk = std::min(bytes - done, window_->slot_bytes());
    if (chunk > 0) std::memcpy(window_->slot(rank()), mine + done, chunk);
    exchange(info, first);
    for (int r = 0; r < size() && chunk > 0; ++r) {
      auto* out = static_cast<std::byte*>(outs[r]) + done;
      if (r != rank()) {
        std::memcpy(out, window_->slot(r), chunk);
      } else if (out != mine + done) {
        std::memcpy(out, mine + done, chunk);
      }
    }
    window_->flip();
    done += chunk;
    first = false;
  } while (done < bytes);
}

void WindowCommunicator::reduce_scatter(const CallInfo& info, std::span<const void* const> ins, void* out,
                                        size_t count) {
  throw_if_broken();
  if (size() == 2) {
    const Segment outgoing[] = {{ins[1 - rank()], nullptr, count}};
    const Segment incoming[] = {{ins[rank()], out, count}};
    reduce_with_peer(info, outgoing, incoming, true);
    return;
  }
  const ReduceFunction reduce = reduce_for(info);
  const size_t element = size_of(info.dtype);
  // A slot holds one part per receiver; parts start on cache lines.
  const size_t part_bytes = window_->slot_bytes() / static_cast<size_t>(size()) / 64 * 64;
  TRIREME_CHECK(part_bytes >= 64, "too many ranks for the slot size");
  const size_t part = part_bytes / element;
  size_t done = 0;
  bool first = true;
  do {
    const size_t chunk = std::min(count - done, part);
    for (int r = 0; r < size() && chunk > 0; ++r) {
      if (r == rank()) continue;
      std::memcpy(window_->slot(rank()) + static_cast<size_t>(r) * part_bytes,
                  static_cast<const std::byte*>(ins[r]) + done * element, chunk * element);
    }
    exchange(info, first);
    if (chunk > 0) {
      for (int r = 0; r < size(); ++r) inputs_[r] = window_->slot(r) + static_cast<size_t>(rank()) * part_bytes;
      inputs_[rank()] = static_cast<const std::byte*>(ins[rank()]) + done * element;
      reduce(static_cast<std::byte*>(out) + done * element, inputs_.data(), size(), chunk);
    }
    window_->flip();
    done += chunk;
    first = false;
  } while (done < count);
}

std::vector<std::unique_ptr<Communicator>> make_inproc_communicators(int size, const CommunicatorOptions& options) {
  const WindowShape shape = {.num_ranks = size, .slot_bytes = default_slot_bytes(size)};
  const auto memory = make_inproc_memory(shape);
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    communicators.push_back(std::make_unique<WindowCommunicator>(std::make_unique<Window>(memory, shape, r, options)));
  }
  return communicators;
}

}  // namespace trireme::comm
