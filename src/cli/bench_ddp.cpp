#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/str.h"
#include "cli/bench.h"
#include "cli/bench_models.h"
#include "comm/group_state.h"
#include "memory/leak_watch_switch.h"
#include "profile/collective_trace.h"

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

namespace trireme::bench {
namespace {

/// CPU time of the launcher's watch so far, ns; below 0: nobody watches, or this kernel does not tell.
double watch_ns() {
  const char* pid = std::getenv("TRIREME_WATCHER");
  if (pid == nullptr || *pid == '\0') return -1;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(str("/proc/", pid, "/task"), error)) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    double on_cpu = -1;
    if (name == "trireme-watch" && std::ifstream(task.path() / "schedstat") >> on_cpu) return on_cpu;
  }
  return -1;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Without the largest and the smallest tenth: what another program did in one step of a pair says nothing about recording.
double trimmed_mean(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const size_t cut = values.size() / 10;
  double sum = 0;
  for (size_t i = cut; i < values.size() - cut; ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - 2 * cut);
}

/// 95 % of the resampled trimmed means are below.
double upper_bound(const std::vector<double>& differences) {
  constexpr int kSamples = 2000;
  std::mt19937 random(1);
  std::uniform_int_distribution<size_t> pick(0, differences.size() - 1);
  std::vector<double> means;
  std::vector<double> sample(differences.size());
  for (int i = 0; i < kSamples; ++i) {
    for (double& value : sample) value = differences[pick(random)];
    means.push_back(trimmed_mean(sample));
  }
  std::sort(means.begin(), means.end());
  return means[kSamples * 95 / 100];
}

OverheadRow measure(const Group& world, const Entry& entry, const OverheadOptions& options) {
  torch::manual_seed(1);
  DistributedDataParallel<Sequential> ddp(world, entry.make());
  torch::optim::SGD optimizer(ddp.parameters(), 0.01);
  const Batch batch = make_batch(world, options.batch);
  profile::CollectiveTrace& trace = *world.state().trace;
  const auto record = [&](bool on) {
    options.leak_watch ? memory::set_leak_watch_recording(on) : trace.set_recording(on);
  };

  OverheadRow row;
  row.what = options.leak_watch ? "leak watch" : "collective trace";
  row.model = entry.name;
  row.ranks = world.size();
  row.repetitions = options.repetitions > 0 ? options.repetitions : entry.make == make_tiny ? 4000 : 600;
  std::vector<double> times[2];
  std::vector<double> differences;
  constexpr int kWarmUp = 10;
  uint32_t step = 0;
  double watched_ns = watch_ns();
  auto start = std::chrono::steady_clock::now();
  for (int i = -kWarmUp; i < row.repetitions; ++i) {
    if (i == 0) {
      watched_ns = watch_ns();
      start = std::chrono::steady_clock::now();
    }
    double took[2] = {};
    // Each comes first in every other pair, so that what one step leaves to the next hits both.
    for (const bool on : {i % 2 == 0, i % 2 != 0}) {
      set_step(++step);
      record(on);
      took[on ? 1 : 0] = step_ms(world, optimizer, batch, [&](const at::Tensor& x) { return ddp.forward(x); });
    }
    record(true);
    if (i < 0) continue;
    times[0].push_back(took[0]);
    times[1].push_back(took[1]);
    differences.push_back((took[1] - took[0]) * 1e3);
  }
  const double passed_ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  const double watched_now_ns = watch_ns();
  row.watch_share = watched_ns >= 0 && watched_now_ns >= 0 ? (watched_now_ns - watched_ns) / passed_ns : -1;
  row.num_calls = ddp.stats().num_buckets;
  row.on_ms = median(times[1]);
  row.off_ms = median(times[0]);
  row.upper_us = upper_bound(differences);
  row.difference_us = trimmed_mean(differences);
  row.overhead = row.difference_us / (row.off_ms * 1e3);
  row.overhead_upper = row.upper_us / (row.off_ms * 1e3);
  return row;
}

}  // namespace

std::vector<OverheadRow> bench_overhead(const OverheadOptions& options) {
  at::set_num_threads(1);
  if (options.leak_watch) memory::start_leak_watch();
  const Group world = init();
  std::vector<OverheadRow> rows;
  for (const Entry& entry : kEntries) {
    if (!is_wanted(entry, options.models)) continue;
    OverheadRow row = measure(world, entry, options);
    if (world.rank() == 0) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace trireme::bench
