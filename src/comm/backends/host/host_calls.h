// One call each: which tensors it holds, and what it asks of the Communicator.
#pragma once

#include <cstddef>

#include "comm/backends/host/host_work.h"

namespace trireme::comm {

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

// outputs: one tensor per rank, or a single one that holds all parts.
struct AllGatherWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override {
    const at::Tensor& input = inputs[0];
    c10::SmallVector<void*, 8> parts;
    for (int r = 0; r < communicator.size(); ++r) {
      parts.push_back(outputs.size() == 1 ? static_cast<std::byte*>(outputs[0].data_ptr()) + r * input.nbytes()
                                          : outputs[r].data_ptr());
    }
    communicator.all_gather(info, input.data_ptr(), {parts.data(), parts.size()}, input.nbytes());
  }
};

struct ReduceScatterWork final : HostWork {
  using HostWork::HostWork;
  void run(Communicator& communicator, const CallInfo& info) override {
    const at::Tensor& output = outputs[0];
    c10::SmallVector<const void*, 8> parts;
    for (int r = 0; r < communicator.size(); ++r) {
      parts.push_back(inputs.size() == 1
                          ? static_cast<const std::byte*>(inputs[0].const_data_ptr()) + r * output.nbytes()
                          : inputs[r].const_data_ptr());
    }
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
