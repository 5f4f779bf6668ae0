// Trains a few steps, keeps tensors of a known size, and writes the snapshot. Usage: snapshot_tool FILE [oom]
#include <torch/torch.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "trireme/memory/history.h"

constexpr int64_t kKept = 7;
constexpr int64_t kFloats = 50'000;

[[gnu::noinline]] at::Tensor keeps_a_tensor() { return torch::zeros({kFloats}); }

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  torch::set_num_threads(1);
  const bool oom = argc > 2 && std::strcmp(argv[2], "oom") == 0;
  trireme::memory::MemoryHistoryOptions options;
  if (oom) options.at_out_of_memory = argv[1];
  trireme::memory::record_memory_history(options);
  torch::nn::Sequential net(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 10));
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::vector<at::Tensor> kept;
  for (int64_t step = 0; step < kKept; ++step) {
    sgd.zero_grad();
    net->forward(torch::rand({16, 64})).sum().backward();
    sgd.step();
    kept.push_back(keeps_a_tensor());
  }
  if (oom) {
    try {
      const at::Tensor none = torch::empty({int64_t{1} << 45});
    } catch (const c10::Error&) {
      return 0;
    }
    return 1;
  }
  const auto stats = trireme::memory::dump_memory_snapshot(argv[1]);
  std::printf("%lld %lld %llu\n", static_cast<long long>(kKept), static_cast<long long>(kKept * kFloats * 4),
              static_cast<unsigned long long>(stats.events));
  return 0;
}
