#include <torch/torch.h>

#include <algorithm>
#include <chrono>

#include "base/str.h"
#include "cli/bench.h"
#include "trireme/trireme.h"

namespace trireme::bench {
namespace {

using Clock = std::chrono::steady_clock;
using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

Sequential make_tiny() { return Sequential(Linear(784, 256), ReLU(), Linear(256, 10)); }
Sequential make_wide() { return Sequential(Linear(784, 2048), ReLU(), Linear(2048, 2048), ReLU(), Linear(2048, 10)); }
Sequential make_deep() {
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
constexpr Entry kEntries[] = {{"784-256-10", make_tiny}, {"784-2048-2048-10", make_wide}, {"784-60x128-10", make_deep}};

const char* name_of(parallel::GradientMode mode) {
  switch (mode) {
    case parallel::GradientMode::kStaged:
      return "staged";
    case parallel::GradientMode::kBucketView:
      return "bucket_view";
    case parallel::GradientMode::kArena:
      return "arena";
  }
  return "?";
}

struct Batch {
  at::Tensor x, y;
};

template <typename Forward>
double step_ms(const Group& world, torch::optim::SGD& optimizer, const Batch& batch, Forward&& forward) {
  comm::barrier(world);
  const auto start = Clock::now();
  optimizer.zero_grad();
  torch::cross_entropy_loss(forward(batch.x), batch.y).backward();
  optimizer.step();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Quantiles {
  double median, min, p90;
  explicit Quantiles(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    median = times[times.size() / 2];
    min = times.front();
    p90 = times[times.size() * 9 / 10];
  }
};

DdpOptions ddp_options_of(const DdpBenchOptions& options) {
  DdpOptions ddp_options;
  parallel::set_ddp_option(ddp_options, "gradients", options.gradients);
  for (const std::string& text : options.overrides) {
    const size_t equals = text.find('=');
    parallel::set_ddp_option(ddp_options, text.substr(0, equals),
                             equals == std::string::npos ? std::string{} : text.substr(equals + 1));
  }
  return ddp_options;
}

DdpRow measure(const Group& world, const Entry& entry, const DdpBenchOptions& options) {
  torch::manual_seed(1);
  Sequential plain = entry.make();
  const DdpOptions ddp_options = ddp_options_of(options);
  DistributedDataParallel<Sequential> ddp(world, entry.make(), ddp_options);
  torch::optim::SGD plain_optimizer(plain->parameters(), 0.01);
  torch::optim::SGD ddp_optimizer(ddp.parameters(), 0.01);
  torch::manual_seed(100 + static_cast<uint64_t>(world.rank()));
  const Batch batch{torch::randn({options.batch, 784}), torch::randint(0, 10, {options.batch})};

  DdpRow row;
  row.repetitions = options.repetitions > 0 ? options.repetitions : 40;
  std::vector<double> local, distributed;
  constexpr int kWarmUp = 4;
  for (int i = -kWarmUp; i < row.repetitions; ++i) {
    // Interleaved, so that whatever else the machine does hits both; every rank is busy in both.
    const double a = step_ms(world, plain_optimizer, batch, [&](const at::Tensor& x) { return plain->forward(x); });
    const double b = step_ms(world, ddp_optimizer, batch, [&](const at::Tensor& x) { return ddp.forward(x); });
    if (i < 0) continue;
    local.push_back(a);
    distributed.push_back(b);
  }
  const Quantiles mine(distributed);
  const Quantiles base(local);
  const auto stats = ddp.stats();
  row.model = entry.name;
  row.ranks = world.size();
  row.gradients = name_of(ddp.options().gradients);  // --set may have chosen another
  row.step_ms = mine.median;
  row.step_min_ms = mine.min;
  row.step_p90_ms = mine.p90;
  row.local_ms = base.median;
  row.local_min_ms = base.min;
  row.local_p90_ms = base.p90;
  row.ratio = mine.median / base.median;
  row.gradient_bytes = stats.gradient_bytes;
  row.bytes_touched = stats.bytes_touched;
  row.num_buckets = stats.num_buckets;
  return row;
}

}  // namespace

void check_ddp_bench(const DdpBenchOptions& options) { (void)ddp_options_of(options); }

std::vector<DdpRow> bench_ddp(const DdpBenchOptions& options) {
  at::set_num_threads(1);
  const Group world = init();
  std::vector<DdpRow> rows;
  for (const Entry& entry : kEntries) {
    if (!options.models.empty() &&
        std::find(options.models.begin(), options.models.end(), entry.name) == options.models.end()) {
      continue;
    }
    DdpRow row = measure(world, entry, options);
    if (world.rank() == 0) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace trireme::bench
