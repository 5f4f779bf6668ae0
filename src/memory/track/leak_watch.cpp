#include "memory/track/leak_watch.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/str.h"
#include "memory/track/call_site.h"

namespace trireme::memory {
namespace {

/// So many samples of a line make a judgement. At 1 MB a step they come within 10 to 12 steps.
constexpr int kEnoughSamples = 8;
/// A step may end while its own tensors are alive, so what was born in the last two says nothing.
constexpr int64_t kYoungSteps = 2;
/// A queue or a window of steps that fills is not told before so many.
constexpr int64_t kFewestSteps = 10;
constexpr size_t kMostLateDeaths = 64;

std::string amount(double bytes) {
  const char* unit = " KB";
  double value = bytes / 1e3;
  if (value >= 1000) {
    value /= 1e3;
    unit = " MB";
  }
  if (value >= 1000) {
    value /= 1e3;
    unit = " GB";
  }
  // One digit behind the point, without printf's rounding to even.
  const auto tenths = static_cast<int64_t>(std::llround(value * 10));
  return str(tenths / 10, ".", tenths % 10, unit);
}

}  // namespace

std::string Growth::text() const {
  const char* cause = with_graph ? "probably a loss or an output that is kept with its graph: keep loss.item<float>() "
                                   "or tensor.detach() instead"
                                 : "something that is added to in every step and never emptied";
  return str("memory grows by ", amount(bytes_per_step), " per step since step ", since_step, " (", amount(bytes),
             " by step ", step, "), allocated at ", where, through.empty() ? "" : str(" through ", through), "; ",
             cause, ". File and line: ", resolve);
}

LeakWatch::LeakWatch(const LeakWatchOptions& options)
    : mean_bytes_(std::max(1.0, options.mean_sample_bytes)), seed_(options.seed) {
  std::array<void*, 4> warm_up;
  (void)capture_stack(warm_up);  // the first stack of a process loads the unwinder, which allocates
}

size_t LeakWatch::slot_of(const void* block) noexcept {
  return (reinterpret_cast<uintptr_t>(block) * 0x9e3779b97f4a7c15) >> 50;
}

// Bytes to the next sample: exponential, so that each byte of each thread is as likely as any other.
void LeakWatch::allocated(const void* block, size_t bytes, bool in_graph) noexcept {
  struct Sampling {
    const LeakWatch* of = nullptr;
    double left = 0;
    std::mt19937_64 random;
  };
  thread_local Sampling sampling;
  const auto draw = [&] { return -mean_bytes_ * std::log(1.0 - std::generate_canonical<double, 53>(sampling.random)); };
  if (sampling.of != this) [[unlikely]] {
    sampling.of = this;
    sampling.random.seed(seed_ + 0x9e3779b97f4a7c15 * num_threads_.fetch_add(1, std::memory_order_relaxed));
    sampling.left = draw();
  }
  sampling.left -= static_cast<double>(bytes);
  if (sampling.left > 0) return;
  sampling.left = draw();
  // It was sampled with this probability, so it stands for as many bytes more.
  const double size = static_cast<double>(bytes);
  const double probability = mean_bytes_ <= 1 ? 1.0 : 1.0 - std::exp(-size / mean_bytes_);
  try {
    add_sample(block, size / probability, in_graph);
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for the sample; the allocation itself is well
  }
}

void LeakWatch::add_sample(const void* block, double bytes, bool in_graph) {
  std::array<void*, kMostDepth> frames;
  const size_t depth = capture_stack(frames);
  const std::lock_guard lock(mutex_);
  const uint32_t index = line_of(Stack(frames.begin(), frames.begin() + static_cast<ptrdiff_t>(depth)));
  const int64_t born = step();
  if (!samples_.emplace(block, Sample{bytes, index, born, in_graph}).second)
    return;  // a free that was not told: keep the first
  filter_[slot_of(block)].fetch_add(1, std::memory_order_release);
  Line& line = lines_[index];
  if (line.births.empty() || line.births.back().step != born) line.births.push_back({.step = born});
  Line::Born& birth = line.births.back();
  ++birth.alive;
  birth.in_graph += in_graph ? 1 : 0;
  birth.bytes += bytes;
}

uint32_t LeakWatch::line_of(const Stack& stack) {
  if (const auto known = stacks_.find(stack); known != stacks_.end()) return known->second;
  const size_t user = user_frame(stack);
  const void* address = stack.empty() ? nullptr : stack[user];
  const auto [it, is_new] = line_index_.emplace(address, static_cast<uint32_t>(lines_.size()));
  if (is_new) {
    Line line;
    line.address = address;
    line.through = user > 0 ? stack[user - 1] : nullptr;
    lines_.push_back(std::move(line));
  }
  if (stacks_.size() < kMostStacks) stacks_.emplace(stack, it->second);
  return it->second;
}

void LeakWatch::freed(const void* block) noexcept {
  if (filter_[slot_of(block)].load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(mutex_);
  const auto it = samples_.find(block);
  if (it == samples_.end()) return;
  const Sample sample = it->second;
  samples_.erase(it);
  filter_[slot_of(block)].fetch_sub(1, std::memory_order_release);
  Line& line = lines_[sample.line];
  const auto birth = std::lower_bound(line.births.begin(), line.births.end(), sample.born,
                                      [](const Line::Born& b, int64_t step) { return b.step < step; });
  if (birth == line.births.end() || birth->step != sample.born) return;
  --birth->alive;
  birth->in_graph -= sample.in_graph ? 1 : 0;
  birth->bytes -= sample.bytes;
  if (birth->alive == 0) line.births.erase(birth);
  if (step() - sample.born >= kYoungSteps) {
    line.late_deaths.push_back(step());
    if (line.late_deaths.size() > kMostLateDeaths) line.late_deaths.pop_front();
  }
}

// Goes back from now as long as births come at the line's own pace; what was born long before that was made once and kept.
bool LeakWatch::grows(const Line& line, Growth& growth) const {
  const int64_t now = step();
  int samples = 0;
  int in_graph = 0;
  double bytes = 0;
  int64_t since = now;
  std::vector<int64_t> gaps;
  for (auto birth = line.births.rbegin(); birth != line.births.rend(); ++birth) {
    if (now - birth->step < kYoungSteps) continue;
    const int64_t gap = since - birth->step;
    if (gaps.size() >= 4) {
      std::vector<int64_t> sorted = gaps;
      std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2), sorted.end());
      if (gap > 6 * std::max<int64_t>(1, sorted[sorted.size() / 2])) break;
    }
    gaps.push_back(gap);
    samples += birth->alive;
    in_graph += birth->in_graph;
    bytes += birth->bytes;
    since = birth->step;
    if (gaps.size() >= 256) break;  // enough to judge by, and this runs in every step
  }
  const int64_t steps = now - since;
  if (samples < kEnoughSamples || steps < kFewestSteps || gaps.size() < kEnoughSamples) return false;
  // It must still be going on: an average pace that has stopped is a cache that is full.
  if (gaps.front() - kYoungSteps > 3 * std::max<int64_t>(1, steps / static_cast<int64_t>(gaps.size()))) return false;
  const auto deaths =
      std::count_if(line.late_deaths.begin(), line.late_deaths.end(), [&](int64_t step) { return step >= since; });
  if (deaths * 10 > samples) return false;
  growth.bytes = bytes;
  growth.bytes_per_step = bytes / static_cast<double>(std::max<int64_t>(1, steps - kYoungSteps + 1));
  growth.since_step = since;
  growth.step = now;
  growth.with_graph = 2 * in_graph > samples;
  return true;
}

std::vector<Growth> LeakWatch::end_step() {
  std::vector<Growth> found;
  const std::lock_guard lock(mutex_);
  step_.fetch_add(1, std::memory_order_relaxed);
  for (Line& line : lines_) {
    Growth growth;
    if (line.births.size() < kEnoughSamples || !grows(line, growth) || growth.bytes < 2 * line.told_bytes) continue;
    line.told_bytes = growth.bytes;
    const Frame frame = describe_frame(line.address);
    growth.where = frame.text();
    growth.resolve = str("addr2line -Cfie ", frame.module, " 0x", std::hex, frame.offset);
    if (line.through != nullptr) growth.through = describe_frame(line.through).function;
    found.push_back(std::move(growth));
  }
  std::sort(found.begin(), found.end(),
            [](const Growth& a, const Growth& b) { return a.bytes_per_step > b.bytes_per_step; });
  return found;
}

}  // namespace trireme::memory
