#include <algorithm>

#include "base/str.h"
#include "cli/bench.h"
#include "cli/bench_models.h"

namespace trireme::bench {
namespace {

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
  const Batch batch = make_batch(world, options.batch);

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
    if (!is_wanted(entry, options.models)) continue;
    DdpRow row = measure(world, entry, options);
    if (world.rank() == 0) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace trireme::bench
