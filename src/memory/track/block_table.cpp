#include "memory/track/block_table.h"

#include <algorithm>

namespace trireme::memory {
namespace {

constexpr auto kActivations = Category::kActivations;
int64_t& of(MemoryUse& use, Category category) { return use.bytes[static_cast<size_t>(category)]; }

}  // namespace

uint32_t BlockTable::module_index(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = module_indices_.emplace(name, static_cast<uint32_t>(modules_.size()));
  if (is_new) modules_.push_back(name);
  return it->second;
}

std::string BlockTable::module_name(uint32_t index) const {
  const std::lock_guard lock(mutex_);
  return index < modules_.size() ? modules_[index] : std::string{};
}

void BlockTable::allocated(const void* block, int64_t bytes, BlockLabel label, bool foreign) {
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = blocks_.try_emplace(block);
  if (!is_new) add_event(-it->second.bytes, it->second.label);  // its free was not told
  ++allocations_;
  const uint32_t event = add_event(bytes, label);
  it->second = {bytes, label, window_, event, foreign};
}

void BlockTable::freed(const void* address) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto it = blocks_.find(address); it != blocks_.end()) erase(it);
}

void BlockTable::foreign_freed(const void* address) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto it = blocks_.find(address); it != blocks_.end() && it->second.foreign) erase(it);
}

void BlockTable::erase(std::unordered_map<const void*, Block>::iterator at) noexcept {
  ++frees_;
  const Block block = at->second;
  blocks_.erase(at);
  try {
    add_event(-block.bytes, block.label);
  } catch (...) {  // no memory for the event: the peak of this window is not known exactly, the present is
    of(now_, block.label.category) -= block.bytes;
  }
}

uint32_t BlockTable::add_event(int64_t bytes, BlockLabel label) {
  if (events_.size() >= kMostEvents) sweep();
  events_.push_back({bytes, label.category, label.module});
  return static_cast<uint32_t>(events_.size() - 1);
}

// The new label holds from the block's birth on, as far back as events are kept.
void BlockTable::change_label(Block& block, BlockLabel label) {
  if (block.window == window_) {
    events_[block.event].category = label.category;
    events_[block.event].module = label.module;
  } else {
    const auto move = [&](BlockLabel to, int64_t bytes) {
      of(now_, to.category) += bytes;
      if (to.category == kActivations && to.module < activations_.size()) activations_[to.module] += bytes;
    };
    activations_.resize(modules_.size());
    move(block.label, -block.bytes);
    move(label, block.bytes);
  }
  block.label = label;
}

BlockTable::Region* BlockTable::region_of(const void* address) {
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin()) return nullptr;
  --it;
  return static_cast<const char*>(address) < static_cast<const char*>(it->first) + it->second.bytes ? &it->second
                                                                                                    : nullptr;
}

bool BlockTable::relabel(const void* address, BlockLabel label, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (Region* region = region_of(address)) {
    if (region->lent.contains(address) || label.category == Category::kCommunication) return true;
    add_event(-bytes, {Category::kCommunication, 0});
    const uint32_t event = add_event(bytes, label);
    region->lent.emplace(address, Block{bytes, label, window_, event, false});
    return true;
  }
  const auto it = blocks_.find(address);
  if (it == blocks_.end()) return false;
  if (it->second.label.category != label.category || it->second.label.module != label.module)
    change_label(it->second, label);
  return true;
}

std::optional<BlockLabel> BlockTable::label_of(const void* block) const {
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(block);
  if (it != blocks_.end()) return it->second.label;
  for (const auto& [begin, region] : regions_) {
    if (const auto lent = region.lent.find(block); lent != region.lent.end()) return lent->second.label;
  }
  return std::nullopt;
}

void BlockTable::add_region(const void* begin, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!regions_.try_emplace(begin, Region{bytes, {}}).second) return;
  add_event(bytes, {Category::kCommunication, 0});
}

void BlockTable::remove_region(const void* begin) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = regions_.find(begin);
  if (it == regions_.end()) return;
  // At once, not by events, for which there may be no memory: the highest values come before.
  try {
    sweep();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the peak of this window is not known exactly, the present is
  }
  int64_t left = it->second.bytes;
  for (const auto& [address, block] : it->second.lent) {
    of(now_, block.label.category) -= block.bytes;
    left -= block.bytes;
  }
  of(now_, Category::kCommunication) -= left;
  regions_.erase(it);
}

void BlockTable::end_loans(const std::unordered_set<const void*>& but) {
  const std::lock_guard lock(mutex_);
  for (auto& [begin, region] : regions_) {
    for (auto lent = region.lent.begin(); lent != region.lent.end();) {
      if (but.contains(lent->first)) {
        ++lent;
        continue;
      }
      add_event(-lent->second.bytes, lent->second.label);
      add_event(lent->second.bytes, {Category::kCommunication, 0});
      lent = region.lent.erase(lent);
    }
  }
}

void BlockTable::apply(const Event& event) {
  int64_t& bytes = of(now_, event.category);
  bytes += event.bytes;
  int64_t& peak = of(peak_, event.category);
  peak = std::max(peak, bytes);
  if (event.category == kActivations) {
    activations_[event.module] += event.bytes;
    peak_activations_[event.module] = std::max(peak_activations_[event.module], activations_[event.module]);
  }
  if (event.bytes > 0 && now_.total() > at_peak_.total()) at_peak_ = now_;
}

void BlockTable::sweep() {
  activations_.resize(modules_.size());
  peak_activations_.resize(modules_.size());
  // What was relabelled before this window has changed the beginning.
  for (size_t i = 0; i < kNumCategories; ++i) peak_.bytes[i] = std::max(peak_.bytes[i], now_.bytes[i]);
  if (now_.total() > at_peak_.total()) at_peak_ = now_;
  for (const Event& event : events_) apply(event);
  events_.clear();
  ++window_;
}

void BlockTable::end_step() {
  const std::lock_guard lock(mutex_);
  sweep();
  ++steps_;
}

void BlockTable::reset_peak() {
  const std::lock_guard lock(mutex_);
  sweep();
  peak_ = now_;
  at_peak_ = now_;
  peak_activations_ = activations_;
}

MemoryReport BlockTable::report() {
  const std::lock_guard lock(mutex_);
  sweep();
  MemoryReport report;
  report.current = now_;
  report.peak = peak_;
  report.at_peak = at_peak_;
  report.allocations = allocations_;
  report.frees = frees_;
  report.steps = steps_;
  std::vector<ModuleUse> modules(modules_.size());
  const auto add = [&](const Block& block) {
    ++report.blocks[static_cast<size_t>(block.label.category)];
    if (block.label.module > 0) of(modules[block.label.module].current, block.label.category) += block.bytes;
  };
  for (const auto& [address, block] : blocks_) add(block);
  for (const auto& [begin, region] : regions_) {
    ++report.blocks[static_cast<size_t>(Category::kCommunication)];
    for (const auto& [address, block] : region.lent) add(block);
  }
  for (size_t i = 1; i < modules.size(); ++i) {
    modules[i].name = modules_[i];
    modules[i].peak_activations = peak_activations_[i];
  }
  modules.erase(modules.begin());
  std::sort(modules.begin(), modules.end(), [](const ModuleUse& a, const ModuleUse& b) { return a.name < b.name; });
  report.modules = std::move(modules);
  return report;
}

}  // namespace trireme::memory
