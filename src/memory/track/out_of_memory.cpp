#include "memory/track/out_of_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "base/str.h"
#include "memory/track/amount.h"

namespace trireme::memory {
namespace {

/// Where the stack has unwound, the moment of the highest total is the nearest to the failure.
const MemoryUse& use_of(const OutOfMemory& failure) {
  return failure.at_that_moment ? failure.held.current : failure.held.at_peak;
}

int64_t read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;  // "max" is none
}

int64_t activations_of(const OutOfMemory& failure, const ModuleUse& module) {
  return failure.at_that_moment ? module.current[Category::kActivations] : module.peak_activations;
}

std::string held_text(const MemoryUse& use) {
  std::string text;
  for (size_t i = 0; i < kNumCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (use[category] != 0) text += str(text.empty() ? "" : ", ", to_string(category), " ", amount(use[category]));
  }
  return text.empty() ? "nothing that was tracked" : text;
}

std::string largest_modules(const OutOfMemory& failure) {
  std::vector<std::pair<int64_t, std::string>> order;
  for (const ModuleUse& module : failure.held.modules) {
    const int64_t bytes =
        module.current.total() - module.current[Category::kActivations] + activations_of(failure, module);
    if (bytes > 0) order.emplace_back(bytes, module.name.empty() ? "(model)" : module.name);
  }
  std::sort(order.rbegin(), order.rend());
  std::string text;
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < std::min(order.size(), kShown); ++i)
    text += str(text.empty() ? "" : ", ", order[i].second, " ", amount(order[i].first));
  return text;
}

std::string fragmentation(const OutOfMemory& failure) {
  std::string text;
  for (const DeviceUse& device : failure.held.devices) {
    text += str("\n  ", device.device, ": ", amount(device.allocated), " allocated (highest ",
                amount(device.peak_allocated), ") of ", amount(device.reserved),
                " reserved; free in pieces: ", amount(device.reserved - device.allocated), ", of which ",
                amount(device.inactive_split),
                " cannot be given back (PYTORCH_ALLOC_CONF=expandable_segments:True helps against that)");
  }
  const int64_t tracked = failure.held.current.total();
  if (failure.held.resident > 0) {
    text += str("\n  the process has ", amount(failure.held.resident), " in memory, ", amount(tracked),
                " of it in tensors that are known");
  }
  return text;
}

}  // namespace

std::vector<Saving> possible_savings(const OutOfMemory& failure) {
  const MemoryUse& use = use_of(failure);
  const int64_t activations = use[Category::kActivations] + (failure.in_forward ? failure.asked : 0);
  const int64_t gradients = use[Category::kGradients];
  const int64_t state = use[Category::kOptimizerState];
  const int64_t ranks = std::max(2, failure.world_size);
  const auto holding =
      static_cast<double>(std::count_if(failure.held.modules.begin(), failure.held.modules.end(),
                                        [&](const ModuleUse& module) { return activations_of(failure, module) > 0; }));
  std::vector<Saving> all;
  all.push_back({"half the batch, with gradients added up over two", activations / 2});
  if (holding > 4) {
    all.push_back(
        {str("recompute activations in backward, in ", static_cast<int>(std::lround(std::sqrt(holding))), " segments"),
         static_cast<int64_t>(static_cast<double>(activations) * (1 - 2 / std::sqrt(holding)))});
  }
  all.push_back({"activations in bfloat16 (autocast)", activations / 2});
  all.push_back({str("optimizer state sharded over ", ranks, " ranks"), state - state / ranks});
  all.push_back({"optimizer state in 8 bits", state / 4 * 3});
  if (failure.in_forward)
    all.push_back({"zero_grad() before forward, which frees the last step's gradients", gradients});
  all.push_back({"gradients that are reduced where they lie (DdpOptions::gradients = kArena or kBucketView)",
                 std::min(gradients, use[Category::kCommunication])});
  std::erase_if(all, [](const Saving& saving) { return saving.bytes <= 0; });
  std::stable_sort(all.begin(), all.end(), [](const Saving& a, const Saving& b) { return a.bytes > b.bytes; });
  return all;
}

std::string out_of_memory_text(const OutOfMemory& failure) {
  const MemoryUse& use = use_of(failure);
  std::string text = str("[memory.step] rank ", failure.rank, "/", failure.world_size, ": out of memory");
  if (failure.asked > 0) {
    text += str(": ", amount(failure.asked), " were asked for",
                failure.module.empty() ? "" : str(" by an operator of module '", failure.module, "'"),
                failure.in_forward ? " in forward" : "", ", ", amount(failure.available), " of ",
                amount(failure.capacity), " were left (", failure.limit, ")");
  }
  const int64_t missing = failure.asked - failure.available;
  text += str(".\n  held ", failure.at_that_moment ? "at that moment" : "when most was held", ": ", held_text(use),
              "; in all ", amount(use.total()));
  const std::string modules = largest_modules(failure);
  if (!modules.empty()) text += str("\n  largest modules: ", modules);
  text += fragmentation(failure);
  if (failure.asked > failure.capacity && failure.capacity > 0) {
    text +=
        str("\n  This one request is larger than all the memory: probably a shape is wrong (a broadcast of [n, 1] with "
            "[n], an outer "
            "product). Print the shapes before the operator.");
  } else {
    const std::vector<Saving> savings = possible_savings(failure);
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(savings.size(), kShown); ++i) {
      text += str("\n  ", i + 1, ". ", savings[i].change, ": saves about ", amount(savings[i].bytes));
      if (failure.asked > 0 && missing > 0) text += savings[i].bytes >= missing ? " (enough)" : " (not enough alone)";
    }
    if (savings.empty())
      text += "\n  Nothing that is tracked would save much: look for what else holds memory on this host.";
  }
  if (2 * use[Category::kOther] > use.total()) {
    text +=
        "\n  Most is in tensors that belong to no part of the model: record_memory_history() tells which lines made "
        "them.";
  }
  if (!failure.error.empty()) text += "\n  The allocator's words: " + failure.error;
  return text;
}

void look_at_limits(OutOfMemory& failure) {
  failure.capacity = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  failure.available = failure.capacity;
  failure.limit = "the host's memory";
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  std::string unit;
  for (int64_t kib = 0; meminfo >> name >> kib >> unit;) {
    if (name == "MemAvailable:") failure.available = kib * 1024;
  }
  const auto bound = [&failure](int64_t limit, int64_t used, const char* what) {
    if (limit < 0 || used < 0 || limit - used >= failure.available) return;
    failure.available = std::max<int64_t>(0, limit - used);
    failure.capacity = std::min(failure.capacity, limit);
    failure.limit = what;
  };
  rlimit space = {};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
      space.rlim_cur < static_cast<rlim_t>(std::numeric_limits<int64_t>::max())) {
    bound(static_cast<int64_t>(space.rlim_cur), read_number("/proc/self/statm") * sysconf(_SC_PAGESIZE), "RLIMIT_AS");
  }
  bound(read_number("/sys/fs/cgroup/memory.max"), read_number("/sys/fs/cgroup/memory.current"),
        "the cgroup's memory.max");
  bound(read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes"), "the cgroup's memory.limit_in_bytes");
}

}  // namespace trireme::memory
