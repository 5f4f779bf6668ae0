#include "diagnose/job/call_trail.h"

#include <algorithm>

#include "base/str.h"

namespace trireme::diagnose {
namespace {

std::string shape_text(const std::vector<std::vector<int64_t>>& shapes) {
  constexpr size_t kShown = 4;
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(shapes.size(), kShown); ++i) parts.push_back(str("[", join(shapes[i]), "]"));
  if (shapes.size() > kShown) parts.push_back(str("and ", shapes.size() - kShown, " more"));
  return join(parts);
}

}  // namespace

const char* to_string(CallPhase phase) noexcept {
  switch (phase) {
    case CallPhase::kQueued:
      return "scheduled";
    case CallPhase::kStarted:
      return "started";
    case CallPhase::kFinished:
      return "completed";
    case CallPhase::kFailed:
      return "failed";
  }
  return "";
}

std::string Signature::text() const {
  std::string out = op;
  if (!reduce.empty()) out += " " + reduce;
  const bool has_inputs = !inputs.empty() && (inputs.size() > 1 || !inputs[0].empty() || outputs.empty());
  const auto& shapes = has_inputs && kind != "recv" ? inputs : outputs;
  if (!dtypes.empty() || !shapes.empty()) out += str(" ", dtypes, shape_text(shapes));
  if (cut_shape) out += "...";
  if (root >= 0) out += str(kind == "send" ? " to " : " from ", root);
  if (!label.empty()) out += str(" '", label, "'");
  return out;
}

const Call* GroupTrail::find(int64_t number) const {
  const auto at = std::lower_bound(calls.begin(), calls.end(), number,
                                   [](const Call& call, int64_t wanted) { return call.number < wanted; });
  return at != calls.end() && at->number == number ? &*at : nullptr;
}

int64_t GroupTrail::last() const {
  return std::max(calls.empty() ? -1 : calls.back().number, last_enqueued.value_or(-1));
}

uint32_t TrailBook::intern(Signature signature) {
  std::string key = str(signature.op, '|', signature.dtypes, '|', signature.reduce, '|', signature.root, '|',
                        signature.label, '|', signature.cut_shape);
  const auto add_shapes = [&key](const std::vector<std::vector<int64_t>>& shapes) {
    key += '|';
    for (const auto& shape : shapes) key += str("[", join(shape, ","), "]");
  };
  add_shapes(signature.inputs);
  add_shapes(signature.outputs);
  add_shapes({signature.in_splits, signature.out_splits});
  const auto [at, is_new] = by_text_.try_emplace(std::move(key), static_cast<uint32_t>(signatures.size()));
  if (is_new) signatures.push_back(std::move(signature));
  return at->second;
}

uint32_t TrailBook::place(const std::string& text) {
  if (text.empty()) return 0;
  const auto [at, is_new] = by_place_.try_emplace(text, static_cast<uint32_t>(places.size()));
  if (is_new) places.push_back(text);
  return at->second;
}

void TrailBook::add(Trail trail) {
  for (auto& [key, group] : trail.groups) {
    std::stable_sort(group.calls.begin(), group.calls.end(),
                     [](const Call& a, const Call& b) { return a.number < b.number; });
    for (std::vector<Call>* calls : {&group.calls, &group.point_to_point}) {
      if (calls->size() > kMostCalls) calls->erase(calls->begin(), calls->end() - static_cast<ptrdiff_t>(kMostCalls));
    }
  }
  if (trails.size() >= kMostTrails) return;
  const int rank = trail.rank;
  std::string file = trail.file;
  if (!trails.try_emplace(rank, std::move(trail)).second) duplicates.push_back(std::move(file));
}

int TrailBook::global_rank(const std::string& group, int group_rank) const {
  const auto at = groups.find(group);
  if (at == groups.end() || group_rank < 0 || group_rank >= static_cast<int>(at->second.ranks.size()))
    return group_rank;
  return at->second.ranks[static_cast<size_t>(group_rank)];
}

}  // namespace trireme::diagnose
