// CUDA's driver API and NCCL by their symbols: this program is built without either, and runs where neither is.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/str.h"
#include "doctor/links.h"
#include "doctor/probe.h"

namespace trireme::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using diagnose::LinkMeasure;

constexpr int kRepetitions = 5;

/// A call failed; `what()` says which, with CUDA's or NCCL's number.
struct CallFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A library that is never closed: drivers do not like that.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  explicit operator bool() const { return handle_ != nullptr; }
  /// Calls a function that returns 0 when all is well.
  template <typename... Args>
  void call(const char* name, Args... args) const {
    auto* function = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, name));
    if (function == nullptr) throw CallFailed(str(name, " is not in the library"));
    if (const int code = function(args...); code != 0) throw CallFailed(str(name, " gave error ", code));
  }
  template <typename... Args>
  int code(const char* name, Args... args) const {
    auto* function = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, name));
    return function == nullptr ? -1 : function(args...);
  }

 private:
  void* handle_;
};

using Address = unsigned long long;

/// Purpose  One GPU with its primary context and two buffers; what LibTorch would use.
struct Gpu {
  int device = 0;
  void* context = nullptr;
  void* stream = nullptr;
  Address in = 0;
  Address out = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<Gpu> open_gpus(const Library& cuda, size_t bytes) {
  int count = 0;
  cuda.call("cuDeviceGetCount", &count);
  std::vector<Gpu> gpus(static_cast<size_t>(std::max(count, 0)));
  for (int i = 0; i < count; ++i) {
    Gpu& gpu = gpus[static_cast<size_t>(i)];
    cuda.call("cuDeviceGet", &gpu.device, i);
    cuda.call("cuDevicePrimaryCtxRetain", &gpu.context, gpu.device);
    cuda.call("cuCtxSetCurrent", gpu.context);
    cuda.call("cuMemAlloc_v2", &gpu.in, bytes);
    cuda.call("cuMemAlloc_v2", &gpu.out, bytes);
    cuda.call("cuStreamCreate", &gpu.stream, 0U);
  }
  return gpus;
}

LinkMeasure measure_copy(const Library& cuda, const std::vector<Gpu>& gpus, size_t from, size_t to, size_t bytes) {
  LinkMeasure measure;
  measure.kind = "GPU copy";
  measure.from = static_cast<int>(from);
  measure.to = static_cast<int>(to);
  const Gpu& source = gpus[from];
  const Gpu& target = gpus[to];
  int peer = 0;
  cuda.call("cuDeviceCanAccessPeer", &peer, target.device, source.device);
  measure.peer = peer != 0;
  std::vector<unsigned> words(bytes / sizeof(unsigned));
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<unsigned>(i * 2654435761U + from * 97 + to);
  cuda.call("cuCtxSetCurrent", target.context);
  // 704: it is on already.
  if (peer != 0) (void)cuda.code("cuCtxEnablePeerAccess", source.context, 0U);
  cuda.call("cuCtxSetCurrent", source.context);
  cuda.call("cuMemcpyHtoD_v2", source.in, static_cast<const void*>(words.data()), bytes);
  std::vector<double> times;
  for (int i = 0; i < kRepetitions; ++i) {
    const Clock::time_point start = Clock::now();
    cuda.call("cuMemcpyPeer", target.out, target.context, source.in, source.context, bytes);
    cuda.call("cuCtxSynchronize");
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::vector<unsigned> back(words.size());
  cuda.call("cuCtxSetCurrent", target.context);
  cuda.call("cuMemcpyDtoH_v2", static_cast<void*>(back.data()), target.out, bytes);
  for (size_t i = 0; i < words.size(); ++i) measure.wrong += back[i] != words[i] ? 4 : 0;
  measure.gb_per_s = static_cast<double>(bytes) / median(times) / 1e9;
  return measure;
}

/// GPU r holds r + 1 everywhere: the sum is n(n+1)/2, exactly.
LinkMeasure measure_all_reduce(const Library& cuda, const Library& nccl, const std::vector<Gpu>& gpus, size_t bytes) {
  constexpr int kFloat = 7;
  constexpr int kSum = 0;
  const size_t count = bytes / sizeof(float);
  const int n = static_cast<int>(gpus.size());
  std::vector<void*> comms(gpus.size());
  std::vector<int> devices(gpus.size());
  for (int i = 0; i < n; ++i) devices[static_cast<size_t>(i)] = i;
  nccl.call("ncclCommInitAll", comms.data(), n, static_cast<const int*>(devices.data()));
  std::vector<float> values(count);
  for (int i = 0; i < n; ++i) {
    const Gpu& gpu = gpus[static_cast<size_t>(i)];
    std::fill(values.begin(), values.end(), static_cast<float>(i + 1));
    cuda.call("cuCtxSetCurrent", gpu.context);
    cuda.call("cuMemcpyHtoD_v2", gpu.in, static_cast<const void*>(values.data()), bytes);
  }
  std::vector<double> times;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const Clock::time_point start = Clock::now();
    nccl.call("ncclGroupStart");
    for (size_t i = 0; i < gpus.size(); ++i) {
      // CUDA's addresses are numbers in one library and pointers in the other.
      const void* in = reinterpret_cast<const void*>(gpus[i].in);  // NOLINT(performance-no-int-to-ptr)
      void* out = reinterpret_cast<void*>(gpus[i].out);            // NOLINT(performance-no-int-to-ptr)
      nccl.call("ncclAllReduce", in, out, count, kFloat, kSum, comms[i], gpus[i].stream);
    }
    nccl.call("ncclGroupEnd");
    for (const Gpu& gpu : gpus) {
      cuda.call("cuCtxSetCurrent", gpu.context);
      cuda.call("cuStreamSynchronize", gpu.stream);
    }
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  LinkMeasure measure;
  measure.kind = "GPU all-reduce";
  measure.to = n - 1;
  const int sum = n * (n + 1) / 2;
  const auto want = static_cast<float>(sum);
  for (const Gpu& gpu : gpus) {
    cuda.call("cuCtxSetCurrent", gpu.context);
    cuda.call("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), gpu.out, bytes);
    measure.wrong += std::count_if(values.begin(), values.end(), [&](float value) { return value != want; }) * 4;
  }
  // Bus bandwidth, as nccl-tests has it: what a ring's links carry.
  measure.gb_per_s = 2.0 * (n - 1) / n * static_cast<double>(bytes) / median(times) / 1e9;
  for (void* comm : comms) (void)nccl.code("ncclCommDestroy", comm);
  return measure;
}

}  // namespace

void measure_gpu_links(Report& report, size_t bytes) {
  const Library cuda("libcuda.so.1");
  if (!cuda) return;
  std::vector<Gpu> gpus;
  try {
    if (cuda.code("cuInit", 0U) != 0) return;  // told by the row of CUDA
    gpus = open_gpus(cuda, bytes);
    for (size_t from = 0; from < gpus.size(); ++from) {
      for (size_t to = 0; to < gpus.size(); ++to) {
        if (from != to) report.facts.links.push_back(measure_copy(cuda, gpus, from, to, bytes));
      }
    }
  } catch (const CallFailed& failed) {
    add_row(report, "GPU copy", Check::State::kError, failed.what());
    add_finding(report, "links.gpu_failed", Severity::kError, 0.8, str("a copy between GPUs failed: ", failed.what()),
                "See dmesg | grep -E 'NVRM|Xid'; run 'trireme doctor' without --links for the state of the driver.");
    return;
  }
  if (gpus.size() < 2)
    return add_row(report, "GPU copy", Check::State::kOk, gpus.empty() ? "no GPU" : "one GPU: there is no pair");
  const Library nccl("libnccl.so.2");
  if (!nccl)
    return add_row(report, "GPU all-reduce", Check::State::kUnknown, "libnccl.so.2 is not in the library path");
  try {
    report.facts.links.push_back(measure_all_reduce(cuda, nccl, gpus, bytes));
  } catch (const CallFailed& failed) {
    add_row(report, "GPU all-reduce", Check::State::kError, failed.what());
    add_finding(report, "links.nccl_failed", Severity::kError, 0.8,
                str("an all-reduce by NCCL failed: ", failed.what()),
                "Run again with NCCL_DEBUG=INFO in the environment.");
  }
}

}  // namespace trireme::doctor
