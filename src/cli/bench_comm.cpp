#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "base/str.h"
#include "cli/bench.h"
#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/init.h"

namespace trireme::bench {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// One operation on tensors from the default allocator. `fill(seed)` sets the inputs, `wrong(seed)` counts elements that
// differ from the closed form; integer values below 2^24 are exact in f32 in any order.
struct Case {
  std::function<void()> call;
  std::function<void(int seed)> fill;
  std::function<int64_t(int seed)> wrong;
  double received_bytes = 0;  // at least, by each rank
};

at::Tensor pattern(int64_t count, int rank, int seed) {
  return at::remainder(at::arange(count, at::kFloat) + static_cast<double>(31 * rank + 7 * seed), 1021);
}

int64_t differences(const at::Tensor& got, const at::Tensor& want) {
  return (got.reshape(-1) != want.reshape(-1)).sum().item<int64_t>();
}

Case make_all_reduce(const comm::Group& group, int64_t count) {
  at::Tensor x = at::zeros({count});
  const int n = group.size();
  const int rank = group.rank();
  return {[group, x] { comm::all_reduce_sum(group, x).wait(); },
          [x, count, rank](int seed) { x.copy_(pattern(count, rank, seed)); },
          [x, count, n](int seed) {
            at::Tensor want = at::zeros({count});
            for (int r = 0; r < n; ++r) want += pattern(count, r, seed);
            return differences(x, want);
          },
          2.0 * (n - 1) / n * static_cast<double>(count) * 4};
}

Case make_all_gather(const comm::Group& group, int64_t count) {
  const int n = group.size();
  const int rank = group.rank();
  at::Tensor in = at::zeros({count});
  std::vector<at::Tensor> out;
  for (int r = 0; r < n; ++r) out.push_back(at::zeros({count}));
  return {[group, in, out] { comm::all_gather(group, out, in).wait(); },
          [in, count, rank](int seed) { in.copy_(pattern(count, rank, seed)); },
          [out, count, n](int seed) {
            int64_t wrong = 0;
            for (int r = 0; r < n; ++r) wrong += differences(out[static_cast<size_t>(r)], pattern(count, r, seed));
            return wrong;
          },
          static_cast<double>(n - 1) * static_cast<double>(count) * 4};
}

Case make_reduce_scatter(const comm::Group& group, int64_t count) {
  const int n = group.size();
  const int rank = group.rank();
  const int64_t part = count / n;
  at::Tensor in = at::zeros({part * n});
  at::Tensor out = at::zeros({part});
  return {[group, in, out] { comm::reduce_scatter_base_sum(group, out, in).wait(); },
          [in, part, n, rank](int seed) { in.copy_(pattern(part * n, rank, seed)); },
          [out, part, n, rank](int seed) {
            at::Tensor want = at::zeros({part});
            for (int r = 0; r < n; ++r) want += pattern(part * n, r, seed).narrow(0, part * rank, part);
            return differences(out, want);
          },
          static_cast<double>(n - 1) / n * static_cast<double>(count) * 4};
}

Case make_all_to_all(const comm::Group& group, int64_t count) {
  const int n = group.size();
  const int rank = group.rank();
  const int64_t part = count / n;
  at::Tensor in = at::zeros({part * n});
  at::Tensor out = at::zeros({part * n});
  return {[group, in, out] { comm::all_to_all_base(group, out, in).wait(); },
          [in, part, n, rank](int seed) { in.copy_(pattern(part * n, rank, seed)); },
          [out, part, n, rank](int seed) {
            int64_t wrong = 0;
            for (int r = 0; r < n; ++r) {
              wrong +=
                  differences(out.narrow(0, part * r, part), pattern(part * n, r, seed).narrow(0, part * rank, part));
            }
            return wrong;
          },
          static_cast<double>(n - 1) / n * static_cast<double>(count) * 4};
}

Case make_broadcast(const comm::Group& group, int64_t count) {
  at::Tensor x = at::zeros({count});
  const int rank = group.rank();
  return {[group, x] { comm::broadcast(group, x, 0).wait(); },
          [x, count, rank](int seed) { x.copy_(pattern(count, rank, seed)); },
          [x, count](int seed) { return differences(x, pattern(count, 0, seed)); }, static_cast<double>(count) * 4};
}

// The baseline: what one copy of that size costs while every rank does the same.
Case make_memcpy(const comm::Group& group, int64_t count) {
  at::Tensor in = at::zeros({count});
  at::Tensor out = at::zeros({count});
  const int rank = group.rank();
  return {[in, out] { std::copy_n(in.const_data_ptr<float>(), in.numel(), out.mutable_data_ptr<float>()); },
          [in, count, rank](int seed) { in.copy_(pattern(count, rank, seed)); },
          [out, count, rank](int seed) { return differences(out, pattern(count, rank, seed)); },
          static_cast<double>(count) * 4};
}

struct Entry {
  const char* name;
  Case (*make)(const comm::Group&, int64_t count);
};
constexpr Entry kEntries[] = {{"all_reduce", make_all_reduce},         {"all_gather", make_all_gather},
                              {"reduce_scatter", make_reduce_scatter}, {"all_to_all", make_all_to_all},
                              {"broadcast", make_broadcast},           {"memcpy", make_memcpy}};

int default_repetitions(int64_t bytes) {
  if (bytes <= 65536) return 200;
  return bytes <= (int64_t{1} << 20) ? 40 : 15;
}

CommRow measure(const comm::Group& group, const Entry& entry, int64_t bytes, int repetitions) {
  CommRow row;
  row.op = entry.name;
  row.bytes = bytes;
  row.count = bytes / static_cast<int64_t>(sizeof(float));
  row.ranks = group.size();
  row.repetitions = repetitions > 0 ? repetitions : default_repetitions(bytes);
  const Case tested = entry.make(group, row.count);

  int64_t wrong = 0;
  const auto check = [&](int seed) {
    tested.fill(seed);
    comm::barrier(group);
    tested.call();
    wrong += tested.wrong(seed);
  };
  for (int seed = 0; seed < 3; ++seed) check(seed);

  std::vector<double> times;
  for (int i = 0; i < row.repetitions; ++i) {
    // In place, sums grow by n each time; start again before they leave f32.
    if (i % 16 == 0) tested.fill(0);
    comm::barrier(group);
    const auto start = Clock::now();
    tested.call();
    times.push_back(us_since(start));
  }
  check(3);
  at::Tensor total = at::full({1}, wrong, at::kLong);
  comm::all_reduce_sum(group, total).wait();

  std::sort(times.begin(), times.end());
  row.median_us = times[times.size() / 2];
  row.min_us = times.front();
  row.p99_us = times[std::min(times.size() - 1, times.size() * 99 / 100)];
  row.max_us = times.back();
  row.algbw_gb_s = static_cast<double>(bytes) / row.median_us / 1e3;
  row.busbw_gb_s = tested.received_bytes / row.median_us / 1e3;
  row.wrong = total.item<int64_t>();
  return row;
}

}  // namespace

const std::vector<std::string>& comm_ops() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Entry& entry : kEntries) list.emplace_back(entry.name);
    return list;
  }();
  return names;
}

std::vector<CommRow> bench_comm(const CommOptions& options) {
  at::set_num_threads(1);
  const comm::Group world = comm::init();
  std::vector<CommRow> rows;
  // Size by size, as the peers' programs: what large tensors leave in the heap is then the same for all.
  for (const int64_t bytes : options.bytes) {
    for (const Entry& entry : kEntries) {
      if (!options.ops.empty() && std::find(options.ops.begin(), options.ops.end(), entry.name) == options.ops.end()) {
        continue;
      }
      CommRow row = measure(world, entry, bytes, options.repetitions);
      if (world.rank() == 0) rows.push_back(std::move(row));
    }
  }
  // Told operation by operation.
  std::vector<CommRow> ordered;
  for (const Entry& entry : kEntries) {
    for (const CommRow& row : rows) {
      if (row.op == entry.name) ordered.push_back(row);
    }
  }
  return ordered;
}

int hello() {
  const comm::Group world = comm::init();
  at::Tensor one = at::ones({1});
  comm::all_reduce_sum(world, one).wait();
  return one.item<float>() == static_cast<float>(world.size()) ? 0 : 3;
}

}  // namespace trireme::bench
