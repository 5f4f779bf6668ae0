// The MLPs of `trireme bench`, and one step of theirs.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "trireme/trireme.h"

namespace trireme::bench {

using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

inline Sequential make_tiny() { return Sequential(Linear(784, 256), ReLU(), Linear(256, 10)); }
inline Sequential make_wide() {
  return Sequential(Linear(784, 2048), ReLU(), Linear(2048, 2048), ReLU(), Linear(2048, 10));
}
inline Sequential make_deep() {
  Sequential model(Linear(784, 128));
  for (int i = 0; i < 60; ++i) {
    model->push_back(Linear(128, 128));
    model->push_back(ReLU());
  }
  model->push_back(Linear(128, 10));
  return model;
}

struct Entry {
  const char* name;
  Sequential (*make)();
};
inline constexpr Entry kEntries[] = {
    {"784-256-10", make_tiny}, {"784-2048-2048-10", make_wide}, {"784-60x128-10", make_deep}};

/// Empty: all.
inline bool is_wanted(const Entry& entry, const std::vector<std::string>& models) {
  return models.empty() || std::find(models.begin(), models.end(), entry.name) != models.end();
}

struct Batch {
  at::Tensor x, y;
};
inline Batch make_batch(const Group& world, int64_t size) {
  torch::manual_seed(100 + static_cast<uint64_t>(world.rank()));
  return {torch::randn({size, 784}), torch::randint(0, 10, {size})};
}

/// All ranks begin at once. Not inlined: callgrind counts by its name (bench/instructions.py).
template <typename Forward>
[[gnu::noinline]] double step_ms(const Group& world, torch::optim::SGD& optimizer, const Batch& batch,
                                 Forward&& forward) {
  using Clock = std::chrono::steady_clock;
  comm::barrier(world);
  const auto start = Clock::now();
  optimizer.zero_grad();
  torch::cross_entropy_loss(forward(batch.x), batch.y).backward();
  optimizer.step();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace trireme::bench
