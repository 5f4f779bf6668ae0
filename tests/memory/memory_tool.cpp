// A small training program whose memory is known, for tests and for docs/howto/memory.md.
// Usage: memory_tool snapshot FILE | out-of-memory FILE | report | too-much
#include <torch/torch.h>

#include <cinttypes>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/memory/history.h"
#include "trireme/memory/tracker.h"

constexpr int64_t kKept = 7;
constexpr int64_t kFloats = 50'000;

[[gnu::noinline]] at::Tensor keeps_a_tensor() { return torch::zeros({kFloats}); }

struct Training {
  torch::nn::Sequential net{torch::nn::Linear(784, 1024), torch::nn::GELU(), torch::nn::Linear(1024, 1024),
                            torch::nn::GELU(), torch::nn::Linear(1024, 10)};
  torch::optim::Adam adam{net->parameters()};
  std::vector<at::Tensor> kept;

  void step(int64_t rows) {
    adam.zero_grad();
    net->forward(torch::rand({1, 784}).expand({rows, 784})).sum().backward();
    adam.step();
  }
  void steps() {
    for (int64_t i = 0; i < kKept; ++i) {
      step(256);
      kept.push_back(keeps_a_tensor());
    }
  }
};

namespace {

int snapshot(const std::string& file) {
  trireme::memory::record_memory_history();
  Training training;
  training.steps();
  const auto stats = trireme::memory::dump_memory_snapshot(file);
  std::printf("%" PRId64 " %" PRId64 " %" PRIu64 "\n", kKept, kKept * kFloats * int64_t{sizeof(float)}, stats.events);
  return 0;
}

int out_of_memory(const std::string& file) {
  trireme::memory::MemoryHistoryOptions options;
  options.at_out_of_memory = file;
  trireme::memory::record_memory_history(options);
  Training training;
  training.steps();
  try {
    const at::Tensor none = torch::empty({int64_t{1} << 45});
  } catch (const c10::Error&) {
    return 0;
  }
  return 1;
}

int tracked(int64_t rows) {
  Training training;
  trireme::memory::MemoryTracker tracker;
  tracker.add_module(*training.net);
  tracker.add_optimizer(training.adam);
  try {
    for (int i = 0; i < 3; ++i) tracker.run_step([&] { training.step(256); });
    if (rows > 0) tracker.run_step([&] { training.step(rows); });
  } catch (const trireme::Error& error) {
    std::printf("%s\n", error.what());
    return trireme::exit_code(error.kind());
  }
  const trireme::memory::MemoryReport report = tracker.report();
  std::printf("%s\n%s\n%s", report.text().c_str(), report.modules_text().c_str(),
              trireme::memory::tensor_table(tracker.tensors()).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "snapshot") return snapshot(arguments[1]);
  if (arguments.size() == 2 && arguments[0] == "out-of-memory") return out_of_memory(arguments[1]);
  if (arguments.size() == 1 && arguments[0] == "report") return tracked(0);
  if (arguments.size() == 1 && arguments[0] == "too-much") return tracked(400'000);
  return 2;
}
