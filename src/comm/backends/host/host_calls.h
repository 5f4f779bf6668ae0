// One call each: which tensors it holds, and what it asks of the Communicator.
#pragma once

#include <cstddef>
#include <type_traits>

#include "comm/backends/host/host_work.h"

namespace trireme::comm {

/// Where each rank's part is: in a tensor of its own, or one behind the other in a single tensor. Pointer: void* or const void*.
template <typename Pointer, typename Tensors>
[[nodiscard]] c10::SmallVector<Pointer, 8> parts_of(const Tensors& tensors, int size, size_t part_bytes) {
  const auto data = [&tensors](size_t i) -> Pointer {
    if constexpr (std::is_const_v<std::remove_pointer_t<Pointer>>)
      return tensors[i].const_data_ptr();
    else
      return tensors[i].data_ptr();
  };
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte, std::byte>;
  c10::SmallVector<Pointer, 8> parts;
  for (size_t r = 0; r < static_cast<size_t>(size); ++r) {
    parts.push_back(tensors.size() == 1 ? static_cast<Byte*>(data(0)) + r * part_bytes : data(r));
  }
  return parts;
}

struct AllReduceWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override {
    c10::SmallVector<Segment, 4> segments;
    for (const at::Tensor& tensor : outputs) {
      segments.push_back({tensor.data_ptr(), tensor.data_ptr(), static_cast<size_t>(tensor.numel())});
    }
    communicator.all_reduce(info, {segments.data(), segments.size()});
  }
};

struct BroadcastWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override {
    communicator.broadcast(info, outputs[0].data_ptr(), outputs[0].nbytes());
  }
};

struct AllGatherWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override {
    const at::Tensor& input = inputs[0];
    const auto parts = parts_of<void*>(outputs, communicator.size(), input.nbytes());
    communicator.all_gather(info, input.data_ptr(), {parts.data(), parts.size()}, input.nbytes());
  }
};

struct ReduceScatterWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override {
    const at::Tensor& output = outputs[0];
    const auto parts = parts_of<const void*>(inputs, communicator.size(), output.nbytes());
    communicator.reduce_scatter(info, {parts.data(), parts.size()}, output.data_ptr(),
                                static_cast<size_t>(output.numel()));
  }
};

struct AllToAllWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override {
    communicator.all_to_all(info, {send.data(), send.size()}, {receive.data(), receive.size()});
  }
  c10::SmallVector<Communicator::Block, 8> send, receive;
};

struct BarrierWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override { communicator.barrier(info); }
};

struct SendWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override {
    communicator.send(info, inputs[0].const_data_ptr(), inputs[0].nbytes());
  }
};

struct RecvWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override {
    communicator.recv(info, outputs[0].data_ptr(), outputs[0].nbytes());
  }
};

}  // namespace trireme::comm
