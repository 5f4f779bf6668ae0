#include "trace/activity.h"

#include <array>
#include <charconv>
#include <string>

namespace trireme::trace {
namespace {

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Without regard to case; `word` is in small letters.
bool contains(std::string_view text, std::string_view word) {
  if (text.size() < word.size()) return false;
  for (size_t at = 0; at + word.size() <= text.size(); ++at) {
    size_t i = 0;
    while (i < word.size() && lower(text[at + i]) == word[i]) ++i;
    if (i == word.size()) return true;
  }
  return false;
}

bool equals(std::string_view text, std::string_view word) { return text.size() == word.size() && contains(text, word); }

bool starts_with(std::string_view text, std::string_view word) { return equals(text.substr(0, word.size()), word); }

/// Kernels that communicate: NCCL and RCCL, oneCCL, and the all-reduces over peer memory of PyTorch, vLLM and TensorRT-LLM.
bool communication_kernel(std::string_view name) {
  constexpr std::array<std::string_view, 9> kWords = {"nccl",
                                                      "rccl",
                                                      "oneccl",
                                                      "xccl",
                                                      "nvshmem",
                                                      "cross_device_reduce",
                                                      "one_shot_all_reduce",
                                                      "two_shot_all_reduce",
                                                      "multimem_"};
  for (const std::string_view word : kWords) {
    if (contains(name, word)) return true;
  }
  return false;
}

/// On the CPU: a backend's own span is the collective; what enqueues it is communication too.
bool backend_span(std::string_view name) {
  return starts_with(name, "gloo:") || starts_with(name, "mpi:") || starts_with(name, "ucc:") ||
         starts_with(name, "trireme:");
}

bool data_wait(std::string_view name) {
  return contains(name, "dataloader") || equals(name, "data") || equals(name, "data_wait") || equals(name, "data wait");
}

std::optional<int64_t> step_number(std::string_view name) {
  constexpr std::array<std::string_view, 3> kPrefixes = {"ProfilerStep#", "step ", "step#"};
  for (const std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view digits = name.substr(prefix.size());
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc{} && end == digits.data() + digits.size() && number >= 0) return number;
  }
  return std::nullopt;
}

EventClass host(Activity activity, bool collective = false) { return {EventKind::kHost, activity, -1, collective}; }

}  // namespace

EventClass classify(std::string_view category, std::string_view name) {
  if (equals(category, "kernel")) {
    const bool communicates = communication_kernel(name);
    return {EventKind::kDevice, communicates ? Activity::kCommunication : Activity::kCompute, -1, communicates};
  }
  if (equals(category, "gpu_memcpy") || equals(category, "memcpy") || equals(category, "gpu_memset") ||
      equals(category, "memset")) {
    return {EventKind::kDevice, Activity::kCopy, -1, false};
  }
  if (equals(category, "user_annotation") || equals(category, "step")) {
    if (const auto number = step_number(name)) return {EventKind::kStep, Activity::kCompute, *number, false};
    if (backend_span(name)) return host(Activity::kCommunication, true);
    return data_wait(name) ? host(Activity::kDataWait) : EventClass{};
  }
  if (equals(category, "collective")) return host(Activity::kCommunication, true);
  if (equals(category, "data")) return host(Activity::kDataWait);
  constexpr std::array<std::string_view, 11> kIgnored = {"gpu_user_annotation",
                                                         "python_function",
                                                         "cuda_runtime",
                                                         "cuda_driver",
                                                         "runtime",
                                                         "overhead",
                                                         "trace",
                                                         "cpu_instant_event",
                                                         "ac2g",
                                                         "fwdbwd",
                                                         "hip_runtime"};
  if (equals(category, "python_function")) {
    // Only with stacks, and only where no annotation says it: the wait is the call of the loader's iterator.
    return contains(name, "dataloader.py") && contains(name, "__next__") ? host(Activity::kDataWait) : EventClass{};
  }
  for (const std::string_view word : kIgnored) {
    if (equals(category, word)) return {};
  }
  if (contains(category, "runtime") || contains(category, "driver")) return {};
  if (name == "record_param_comms") return {EventKind::kDescription, Activity::kCommunication, -1, false};
  if (backend_span(name)) return host(Activity::kCommunication, true);
  if (starts_with(name, "c10d::") || starts_with(name, "nccl:")) return host(Activity::kCommunication);
  if (data_wait(name)) return host(Activity::kDataWait);
  return host(Activity::kCompute);
}

std::string_view to_string(CollectiveOp op) noexcept {
  constexpr std::array<std::string_view, 12> kNames = {"other",   "barrier",    "all_reduce", "broadcast",
                                                       "reduce",  "all_gather", "gather",     "reduce_scatter",
                                                       "scatter", "all_to_all", "send",       "recv"};
  return kNames[static_cast<size_t>(op)];
}

CollectiveOp collective_op(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    const char small = lower(c);
    if (small >= 'a' && small <= 'z') letters.push_back(small);
  }
  constexpr std::array<std::pair<std::string_view, CollectiveOp>, 11> kWords = {
      {{"allreduce", CollectiveOp::kAllReduce},
       {"allgather", CollectiveOp::kAllGather},
       {"reducescatter", CollectiveOp::kReduceScatter},
       {"alltoall", CollectiveOp::kAllToAll},
       {"broadcast", CollectiveOp::kBroadcast},
       {"barrier", CollectiveOp::kBarrier},
       {"scatter", CollectiveOp::kScatter},
       {"gather", CollectiveOp::kGather},
       {"sendrecv", CollectiveOp::kOther},
       {"send", CollectiveOp::kSend},
       {"recv", CollectiveOp::kRecv}}};
  for (const auto& [word, op] : kWords) {
    if (letters.find(word) != std::string::npos) return op;
  }
  return letters.find("reduce") != std::string::npos ? CollectiveOp::kReduce : CollectiveOp::kOther;
}

bool synchronises(CollectiveOp op) noexcept {
  return op == CollectiveOp::kBarrier || op == CollectiveOp::kAllReduce || op == CollectiveOp::kAllGather ||
         op == CollectiveOp::kReduceScatter || op == CollectiveOp::kAllToAll;
}

int64_t dtype_bytes(std::string_view dtype) {
  if (dtype.starts_with("c10::")) dtype.remove_prefix(5);
  constexpr std::array<std::pair<std::string_view, int64_t>, 33> kBytes = {{{"float", 4},
                                                                            {"float32", 4},
                                                                            {"f32", 4},
                                                                            {"int", 4},
                                                                            {"int32", 4},
                                                                            {"i32", 4},
                                                                            {"unsigned int", 4},
                                                                            {"double", 8},
                                                                            {"float64", 8},
                                                                            {"f64", 8},
                                                                            {"long", 8},
                                                                            {"int64", 8},
                                                                            {"i64", 8},
                                                                            {"long int", 8},
                                                                            {"half", 2},
                                                                            {"float16", 2},
                                                                            {"f16", 2},
                                                                            {"bfloat16", 2},
                                                                            {"bf16", 2},
                                                                            {"short", 2},
                                                                            {"int16", 2},
                                                                            {"char", 1},
                                                                            {"byte", 1},
                                                                            {"bool", 1},
                                                                            {"int8", 1},
                                                                            {"uint8", 1},
                                                                            {"u8", 1},
                                                                            {"i8", 1},
                                                                            {"signed char", 1},
                                                                            {"unsigned char", 1},
                                                                            {"float8_e4m3fn", 1},
                                                                            {"float8_e5m2", 1},
                                                                            {"complex<float>", 8}}};
  for (const auto& [word, bytes] : kBytes) {
    if (equals(dtype, word)) return bytes;
  }
  return 0;
}

}  // namespace trireme::trace
