#include "plan/plan_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/str.h"

namespace trireme::plan {
namespace {

std::string formatted(const char* format, double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value, unit);
  return text;
}

/// Three digits, and the unit.
std::string three_digits(double value, const char* unit) {
  return formatted(value >= 99.95 ? "%.0f %s" : value >= 9.995 ? "%.1f %s" : "%.2f %s", value, unit);
}

/// {20, 20, 20, 19} -> "3x20,19".
std::string runs_of(const std::vector<int>& counts) {
  std::string text;
  for (size_t i = 0; i < counts.size();) {
    size_t end = i;
    while (end < counts.size() && counts[end] == counts[i]) ++end;
    text += str(i > 0 ? "," : "", end - i > 1 ? str(end - i, "x") : std::string(), counts[i]);
    i = end;
  }
  return text;
}

}  // namespace

const char* to_string(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kSelectiveOperators:
      return "selective_op";
    case Recompute::kSelectiveLayers:
      return "selective_layer";
    case Recompute::kFull:
      return "full";
  }
  return "";
}

std::string describe(const Plan& plan) {
  std::string text = str("dp ", plan.dp);
  const auto add = [&text](const char* name, int64_t degree) {
    if (degree > 1) text += str("  ", name, " ", degree);
  };
  add("tp", plan.tp);
  add("pp", plan.pp);
  add("cp", plan.cp);
  add("ep", plan.ep);
  text += str("  micro-batch ", plan.micro_batch);
  if (plan.pp > 1) {
    text += plan.virtual_stages > 1 && plan.schedule != "zbv" ? str("  interleaved x ", plan.virtual_stages)
                                                              : str("  ", plan.schedule);
  }
  if (!plan.stage_layers.empty()) text += str("  layers ", runs_of(plan.stage_layers));
  if (!plan.stage_group.empty()) {
    std::vector<int> kinds;
    for (const int group : plan.stage_group) kinds.push_back(group + 1);
    text += str("  on kind ", runs_of(kinds));
  }
  for (const ReplicaShare& share : plan.replicas) {
    text +=
        str("  [", share.count, " on kind ", share.group + 1, ", ", share.micro_steps, " micro-steps",
            share.shorter > 0 ? str(" (", share.shorter, " of them ", share.micro_steps - 1, ")") : std::string(), "]");
  }
  text += str("  recompute ", to_string(plan.recompute));
  if (plan.dp * plan.cp > 1) text += str("  ZeRO ", plan.zero_stage);
  if (plan.shard_ranks > 0) text += str(" in groups of ", plan.shard_ranks);
  if (plan.bucket_bytes > 0) text += str("  buckets ", bytes_text(static_cast<double>(plan.bucket_bytes)));
  if (plan.compression < 1) text += str("  gradients in ", plan.compression, " of their bytes");
  if (plan.offload_optimizer) text += "  optimizer on the host";
  if (plan.offload_activations) text += "  activations to the host";
  return text;
}

std::vector<std::string> changes(const Plan& from, const Plan& to) {
  std::vector<std::string> all;
  const auto compare = [&all](const char* name, int64_t was, int64_t is) {
    if (was != is) all.push_back(str(name, " ", is, " instead of ", was));
  };
  compare("dp", from.dp, to.dp);
  compare("tp", from.tp, to.tp);
  compare("pp", from.pp, to.pp);
  compare("cp", from.cp, to.cp);
  compare("ep", from.ep, to.ep);
  compare("micro-batch", from.micro_batch, to.micro_batch);
  compare("virtual stages", from.virtual_stages, to.virtual_stages);
  compare("ZeRO", from.zero_stage, to.zero_stage);
  compare("shard ranks", from.shard_ranks, to.shard_ranks);
  compare("bucket bytes", from.bucket_bytes, to.bucket_bytes);
  const auto named_schedule = [](const Plan& p) {
    return p.virtual_stages > 1 && p.schedule != "zbv" ? std::string("interleaved") : p.schedule;
  };
  if (from.pp > 1 && to.pp > 1 && named_schedule(from) != named_schedule(to))
    all.push_back(str("schedule ", named_schedule(to), " instead of ", named_schedule(from)));
  if (from.pp == to.pp && from.stage_layers != to.stage_layers) {
    all.push_back(to.stage_layers.empty() ? std::string("even stages")
                                          : str("layers by stage ", runs_of(to.stage_layers)));
  }
  if (from.compression != to.compression)
    all.push_back(str("gradients in ", to.compression, " of their bytes instead of ", from.compression));
  if (from.offload_optimizer != to.offload_optimizer)
    all.emplace_back(to.offload_optimizer ? "optimizer on the host" : "optimizer on the device");
  if (from.offload_activations != to.offload_activations)
    all.emplace_back(to.offload_activations ? "activations to the host" : "activations on the device");
  if (from.recompute != to.recompute) {
    all.push_back(str("recompute ", to_string(to.recompute), " instead of ", to_string(from.recompute)));
  }
  return all;
}

std::vector<std::string> not_runnable(const Plan& plan) {
  std::vector<std::string> all;
  const auto degree = [&all](const char* name, int64_t value) {
    if (value > 1) all.push_back(str(name, " ", value));
  };
  degree("tp", plan.tp);
  degree("pp", plan.pp);
  degree("cp", plan.cp);
  degree("ep", plan.ep);
  if (plan.recompute != Recompute::kNone) all.emplace_back("recomputation");
  if (plan.zero_stage > 0) all.push_back(str("ZeRO ", plan.zero_stage));
  if (plan.compression < 1) all.emplace_back("compression");
  if (plan.offload_optimizer || plan.offload_activations) all.emplace_back("offload");
  return all;
}

std::vector<NamedSeconds> named(const TimeParts& t) {
  return {{"matrix products", t.matmul.value},
          {"attention", t.attention.value},
          {"element-wise", t.elementwise.value},
          {"recomputation", t.recompute.value},
          {"tensor-parallel collectives", t.tensor_parallel.value},
          {"expert all-to-all", t.expert_parallel.value},
          {"context-parallel exchange", t.context_parallel.value},
          {"kernel launches", t.launch.value},
          {"embedding, head and loss", t.head.value},
          {"pipeline bubble", t.bubble.value},
          {"pipeline sends", t.pipeline.value},
          {"data-parallel gradients", t.gradients.value},
          {"weight gather", t.gather.value},
          {"optimizer", t.optimizer.value},
          {"fixed", t.fixed.value}};
}

std::string why_slower(const TimeParts& slower, const TimeParts& faster) {
  std::vector<NamedSeconds> difference = named(slower);
  const std::vector<NamedSeconds> base = named(faster);
  for (size_t i = 0; i < difference.size(); ++i) difference[i].seconds -= base[i].seconds;
  std::stable_sort(difference.begin(), difference.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.seconds) > std::abs(b.seconds); });
  const double total = std::abs((slower.total() - faster.total()).value);
  std::vector<std::string> words;
  for (const NamedSeconds& part : difference) {
    // Three parts say it; those under a tenth of the difference say nothing.
    if (words.size() == 3 || std::abs(part.seconds) <= 0.1 * total || part.seconds == 0) break;
    words.push_back(str(part.name, part.seconds > 0 ? " +" : " -", seconds_text(std::abs(part.seconds))));
  }
  return words.empty() ? "no part differs by much" : join(words);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1023.5 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? formatted("%.0f %s", bytes, units[0]) : three_digits(bytes, units[unit]);
}

std::string seconds_text(double seconds) {
  if (seconds >= 1) return three_digits(seconds, "s");
  return seconds >= 1e-3 ? three_digits(seconds * 1e3, "ms") : three_digits(seconds * 1e6, "us");
}

std::string count_text(double number) {
  if (number >= 999.5e9) return three_digits(number / 1e12, "T");
  if (number >= 999.5e6) return three_digits(number / 1e9, "B");
  return number >= 999.5e3 ? three_digits(number / 1e6, "M") : formatted("%.0f%s", number, "");
}

}  // namespace trireme::plan
