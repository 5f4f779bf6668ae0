// The collectives on a window: ranks of one host, processes or threads.
//
// Every call goes in phases (sync.h): write a chunk into one's own slot, publish, wait for all, read what the others wrote. The first
// phase of a call carries its header, and nothing is read before all headers have been compared.
#pragma once

#include <memory>
#include <vector>

#include "comm/algorithms/communicator.h"
#include "comm/algorithms/reduce_kernels.h"
#include "comm/transport/window.h"

namespace trireme::comm {

class WindowCommunicator final : public Communicator {
 public:
  explicit WindowCommunicator(std::unique_ptr<Window> window);
  ~WindowCommunicator() override;

  [[nodiscard]] int rank() const override { return window_->rank(); }
  [[nodiscard]] int size() const override { return window_->size(); }
  [[nodiscard]] const CommunicatorOptions& options() const override { return window_->options(); }

  void all_reduce(const CallInfo& info, std::span<const Segment> data) override;
  void all_reduce_shared(const CallInfo& info, std::span<const Segment> data, const SharedParts& shared) override;
  void broadcast(const CallInfo& info, void* data, size_t bytes) override;
  void all_gather(const CallInfo& info, const void* in, std::span<void* const> outs, size_t bytes) override;
  void reduce_scatter(const CallInfo& info, std::span<const void* const> ins, void* out, size_t count) override;
  void all_to_all(const CallInfo& info, std::span<const Block> ins, std::span<const Block> outs) override;
  void barrier(const CallInfo& info) override;
  void send(const CallInfo& info, const void* data, size_t bytes) override;
  void recv(const CallInfo& info, void* data, size_t bytes) override;
  void throw_if_broken() override { window_->throw_if_broken(); }
  void require_members(std::span<const int> members, const IsMissing& is_missing, const std::string& purpose) override {
    window_->require_members(members, is_missing, purpose);
  }
  void abort(const std::string& why) noexcept override;
  void leave() noexcept override { window_->leave(); }

 private:
  /// The staged algorithm; `first` when this is the first phase of the call.
  void reduce_staged(const CallInfo& info, std::span<const Segment> data, ReduceFunction reduce, bool first);
  void reduce_my_share(const CallInfo& info, const SharedParts& shared, ReduceFunction reduce);
  [[nodiscard]] bool agree_on_places(const CallInfo& info, std::span<const Segment> data, const SharedParts& shared);
  /// publish + await_all, and the comparison of headers on a call's first phase.
  void exchange(const CallInfo& info, bool first_phase);
  [[nodiscard]] ReduceFunction reduce_for(const CallInfo& info) const;
  void reduce_with_peer(const CallInfo& info, std::span<const Segment> outgoing, std::span<const Segment> incoming,
                        bool first);
  /// Elements are bytes. `accept` as in PairExchange::run.
  void copy_with_peer(const CallInfo& info, const void* out_data, size_t out_bytes, void* in_data, size_t in_bytes,
                      const std::function<void()>& accept);
  /// Whether reading peers' tensors where they lie is allowed and faster; the same answer on all ranks for equal arguments.
  [[nodiscard]] bool direct_read_pays(size_t bytes_per_peer) const;
  /// What a rank has for one peer; the table of a rank's offers begins its slot.
  struct Offer {
    uint64_t address;
    uint64_t bytes;
  };
  void write_offers(std::span<const Block> blocks);
  [[nodiscard]] Offer offer_of(int sender, int receiver) const;
  /// After the phase that showed the offers: copies each, and ends when all ranks have.
  void read_offers(const CallInfo& info, std::span<const Block> offered, std::span<const Block> wanted);
  void require_peer(const CallInfo& info) const;
  void require_same_message(const CallInfo& sent, const CallInfo& received, int sender, int receiver);

  std::unique_ptr<Window> window_;
  std::vector<const void*> inputs_;  ///< scratch of n pointers: no allocation per call
  /// A segment that all ranks have in shared memory.
  struct Place {
    size_t count;
    size_t first_offset;  ///< index into offsets_: n of them
  };
  std::vector<Place> places_;      ///< scratch of all_reduce_shared
  std::vector<uint64_t> offsets_;  ///< the same
  std::vector<Segment> staged_;    ///< the same
  std::vector<Block> offered_;     ///< scratch, likewise
  std::vector<Block> wanted_;
  std::vector<uint32_t> sent_pieces_;      ///< per receiver: pieces sent so far; touched by that lane's thread only
  std::vector<uint32_t> received_pieces_;  ///< per sender
};

}  // namespace trireme::comm
