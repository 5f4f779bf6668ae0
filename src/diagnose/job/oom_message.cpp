#include "diagnose/job/oom_message.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/str.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

constexpr double kKiB = 1024.0;
constexpr double kMiB = kKiB * 1024;
constexpr double kGiB = kMiB * 1024;
constexpr double kTiB = kGiB * 1024;

/// "1.67 GiB" at the start of the text; "0 bytes". The allocator prints two decimals.
std::optional<int64_t> size_at(std::string_view text) {
  const auto number = leading_number<double>(text);
  if (!number || !(*number >= 0)) return std::nullopt;
  text = trimmed(text);
  text.remove_prefix(std::min(text.find_first_not_of("0123456789.eE+"), text.size()));
  text = trimmed(text);
  constexpr std::array<std::pair<std::string_view, double>, 8> kUnits = {{{"bytes", 1},
                                                                          {"KiB", kKiB},
                                                                          {"MiB", kMiB},
                                                                          {"GiB", kGiB},
                                                                          {"TiB", kTiB},
                                                                          {"KB", kKiB},
                                                                          {"MB", kMiB},
                                                                          {"GB", kGiB}}};
  for (const auto& [name, factor] : kUnits) {
    if (!text.starts_with(name)) continue;
    const double bytes = *number * factor;
    constexpr double kMost = 9.0e18;  // a listed process may print 17179869184.00 GiB: unsigned minus one
    return bytes < kMost ? std::optional(static_cast<int64_t>(std::llround(bytes))) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<int64_t> size_after(std::string_view text, std::string_view marker) {
  const auto rest = after(text, marker);
  return rest ? size_at(*rest) : std::nullopt;
}

/// "100.81 MiB free": the size that ends where `marker` begins.
std::optional<int64_t> size_before(std::string_view text, std::string_view marker) {
  const size_t at = text.find(marker);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  const size_t unit = before.rfind(' ');
  if (unit == std::string_view::npos || unit == 0) return std::nullopt;
  const size_t number = before.find_last_not_of("0123456789.", unit - 1);
  return size_at(before.substr(number == std::string_view::npos ? 0 : number + 1));
}

/// "Process 4121 has 17.00 GiB memory in use." for each other one.
std::optional<int64_t> listed_processes(std::string_view text) {
  std::optional<int64_t> sum;
  for (auto rest = after(text, "Process "); rest; rest = after(*rest, "Process ")) {
    const auto size = size_after(*rest, " has ");
    if (size && *size < static_cast<int64_t>(kTiB)) sum = sum.value_or(0) + *size;
  }
  return sum;
}

template <typename... Options>
std::optional<int64_t> first_of(const Options&... options) {
  std::optional<int64_t> out;
  ((out = out ? out : options), ...);
  return out;
}

}  // namespace

std::optional<int64_t> OomMessage::unallocated() const {
  if (!reserved || !allocated) return std::nullopt;
  return *reserved - *allocated;
}

std::optional<int64_t> OomMessage::outside() const {
  if (other_processes) return other_processes;
  if (capacity && free && process && *process + *free <= *capacity) return *capacity - *free - *process;
  if (!capacity || !free || !reserved || *reserved + *free > *capacity) return std::nullopt;
  return *capacity - *free - *reserved;
}

std::optional<OomMessage> parse_oom_message(std::string_view line) {
  OomMessage out;
  const auto body = after(line, "Tried to allocate ");
  if (!body) {
    if (has(line, "CUDA error: out of memory")) return out;
    return std::nullopt;
  }
  out.ask = size_at(*body);
  if (!out.ask) return std::nullopt;
  const std::string_view text = line;
  out.capacity = first_of(size_before(text, " total capacity;"), size_after(text, "total capacity of "),
                          size_after(text, "total capacty of "), size_after(text, "max allowed: "));
  out.free = first_of(size_before(text, " free;"), size_after(text, "of which "));
  out.allocated = first_of(size_before(text, " already allocated"), size_after(text, "Of the allocated memory "),
                           size_after(text, "MPS allocated: "));
  out.reserved = size_before(text, " reserved in total by PyTorch");
  if (!out.reserved) out.reserved = size_before(text, " cached)");  // 1.4
  const auto unallocated = size_before(text, " is reserved by PyTorch but unallocated");
  if (!out.reserved && out.allocated && unallocated) out.reserved = *out.allocated + *unallocated;
  out.process = size_after(text, "this process has ");
  out.other_processes = listed_processes(text);
  if (!out.other_processes) out.other_processes = size_after(text, "other allocations: ");
  out.allowed = first_of(size_before(text, " allowed;"), size_before(text, " allowed "));
  if (const auto device = after(text, "GPU ")) out.device = leading_number<int>(*device);
  return out;
}

std::string bytes_text(int64_t bytes) {
  std::array<char, 40> text{};
  const auto value = static_cast<double>(bytes);
  if (value < kKiB) return str(bytes, " bytes");
  const auto [unit, name] = value >= kTiB   ? std::pair(kTiB, "TiB")
                            : value >= kGiB ? std::pair(kGiB, "GiB")
                            : value >= kMiB ? std::pair(kMiB, "MiB")
                                            : std::pair(kKiB, "KiB");
  std::snprintf(text.data(), text.size(), "%.2f %s", value / unit, name);
  return text.data();
}

OomVerdict explain(const OomMessage& m) {
  const std::string gpu = m.device ? str("GPU ", *m.device) : std::string("the card");
  const char* full_advice =
      "Make the job smaller: micro-batch, recompute (activation checkpointing), sharded optimizer states; 'trireme "
      "plan estimate-memory' "
      "says what fits.";
  if (!m.ask) {
    return {"memory.full", "a device is out of memory; the message has no numbers",
            "The driver refused, often another process holds the card: nvidia-smi.", 0.6};
  }
  const std::string ask = bytes_text(*m.ask);
  if (m.capacity && *m.ask > 4 * *m.capacity) {
    return {
        "memory.absurd_ask",
        str("no memory problem: one tensor of ", ask, " was asked for, and ", gpu, " has ", bytes_text(*m.capacity)),
        "A shape bug: a wrong index, a broadcast of [N, 1] with [1, N], or a size read from damaged data. The "
        "innermost frame of the traceback shows the "
        "operation.",
        0.97};
  }
  if (m.capacity && m.reserved && *m.reserved > *m.capacity) {
    return {
        "memory.oversubscribed",
        str("PyTorch has reserved ", bytes_text(*m.reserved), ", more than the ", bytes_text(*m.capacity), " of ", gpu,
            ": the driver lends host memory (Windows shared memory, or unified memory)"),
        str("What is free on the card cannot be computed from this. The job needs more than the card: ", full_advice),
        0.9};
  }
  const int64_t free = m.free.value_or(0);
  if (m.allowed && m.capacity && *m.allowed < *m.capacity && m.reserved && *m.reserved + *m.ask > *m.allowed) {
    return {"memory.limit",
            str("this process may use ", bytes_text(*m.allowed), " of ", gpu, ", by set_per_process_memory_fraction"),
            "Raise or remove the fraction.", 0.9};
  }
  const std::optional<int64_t> cached = m.unallocated();
  // Two decimals are printed: as much cached as asked may read a hundredth less.
  const auto rounding = static_cast<int64_t>(0.005 * (*m.ask >= static_cast<int64_t>(kGiB) ? kGiB : kMiB)) + 1;
  if (cached && *cached + rounding >= *m.ask) {
    return {"memory.fragmented",
            str("the cache of ", gpu, " is fragmented: ", bytes_text(*cached), " of it are in no tensor, and yet ", ask,
                " in one piece were not found"),
            "PYTORCH_ALLOC_CONF=expandable_segments:True (before 2.9: PYTORCH_CUDA_ALLOC_CONF); before 2.1: "
            "max_split_size_mb:512. Fewer unlike sizes: "
            "pad sequences to a few lengths.",
            0.9};
  }
  const std::optional<int64_t> outside = m.outside();
  if (outside && m.capacity && *outside >= *m.ask && *outside > *m.capacity / 6) {
    return {"memory.other_process",
            str("about ", bytes_text(*outside), " of the ", bytes_text(*m.capacity), " of ", gpu,
                " are used by something else: another process, a context, or a library's memory"),
            "nvidia-smi shows who; a rank of an earlier run may be left, or two ranks share the card (each must set "
            "its device before anything "
            "touches CUDA).",
            0.85};
  }
  if (m.capacity && *m.ask >= *m.capacity / 5) {
    return {"memory.big_ask",
            str("one big ask: ", ask, " at once, with ", bytes_text(m.allocated.value_or(0)), " of ",
                bytes_text(*m.capacity), " in tensors and ", bytes_text(free + cached.value_or(0)),
                " left; not fragmentation"),
            str("Look at the operation that asks for it (innermost frame): logits or attention over a long sequence "
                "can be chunked. ",
                full_advice),
            0.85};
  }
  std::string cause = str(gpu, " is truly full");
  if (m.allocated && m.capacity)
    cause += str(": tensors hold ", bytes_text(*m.allocated), " of ", bytes_text(*m.capacity));
  if (cached)
    cause += str("; ", bytes_text(*cached), " in the cache and ", bytes_text(free),
                 " free are all that is left, in pieces (", bytes_text(*cached + free), " together)");
  if (m.process && m.reserved && *m.process > *m.reserved)
    cause += str("; ", bytes_text(*m.process - *m.reserved), " are non-PyTorch memory of this process");
  return {"memory.full", cause, full_advice, 0.85};
}

}  // namespace trireme::diagnose
