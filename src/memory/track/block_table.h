// Every living block of memory with what it is for, and what was highest.
//
// A block's purpose is often known only after its birth: a gradient is a temporary of backward until it has become .grad, the state of an optimizer
// a nameless tensor until somebody walks the optimizer. Highest values are therefore taken from a list of events, afterwards, with the last label
// that each block had.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trireme/memory/memory_report.h"

namespace trireme::memory {

struct BlockLabel {
  Category category = Category::kOther;
  uint32_t module = 0;  ///< as module_index() gave it; 0: none
};

/// Purpose        Counts bytes by category, exactly.
/// Invariants     The sum over categories is the sum of the blocks alive. A free of an unknown block changes nothing.
/// Thread safety  All members.
/// Cost           a hash table's insert and 16 bytes an event; the list of events is emptied by sweep(), at the latest after a million.
class BlockTable {
 public:
  /// Of a name; new names get the next index. 0 is no module.
  uint32_t module_index(const std::string& name);
  [[nodiscard]] std::string module_name(uint32_t index) const;

  /// `foreign`: its free will not be told, but found out later.
  void allocated(const void* block, int64_t bytes, BlockLabel label, bool foreign = false);
  void freed(const void* block) noexcept;
  /// A foreign block is gone; changes nothing when its address has become another block's since.
  void foreign_freed(const void* block) noexcept;
  /// Makes an address inside a lent region part of `label`'s category until end_loans(). False: the block is unknown.
  bool relabel(const void* block, BlockLabel label, int64_t bytes);
  [[nodiscard]] std::optional<BlockLabel> label_of(const void* block) const;

  /// Memory that no allocator told of, for communication. Blocks in it are told by relabel() only.
  void add_region(const void* begin, int64_t bytes);
  void remove_region(const void* begin) noexcept;
  /// Returns to their region all addresses but those.
  void end_loans(const std::unordered_set<const void*>& but);

  void end_step();
  void reset_peak();
  /// Categories, blocks and modules; no devices. Takes the highest values of what has happened since the last one.
  [[nodiscard]] MemoryReport report();

 private:
  struct Block {
    int64_t bytes;
    BlockLabel label;
    uint32_t window;  // in which its event is
    uint32_t event;
    bool foreign = false;
  };
  struct Event {
    int64_t bytes;
    Category category;
    uint32_t module;
  };
  struct Region {
    int64_t bytes;
    std::map<const void*, Block> lent;
  };
  static constexpr size_t kMostEvents = size_t{1} << 20;

  uint32_t add_event(int64_t bytes, BlockLabel label);
  void erase(std::unordered_map<const void*, Block>::iterator at) noexcept;
  void change_label(Block& block, BlockLabel label);
  void sweep();
  void apply(const Event& event);
  Region* region_of(const void* address);

  mutable std::mutex mutex_;
  std::unordered_map<const void*, Block> blocks_;
  std::map<const void*, Region> regions_;
  std::vector<std::string> modules_{""};
  std::unordered_map<std::string, uint32_t> module_indices_;
  std::vector<Event> events_;
  uint32_t window_ = 0;
  MemoryUse now_;  // at the end of the last sweep
  MemoryUse peak_;
  MemoryUse at_peak_;
  std::vector<int64_t> activations_;  // by module
  std::vector<int64_t> peak_activations_;
  int64_t allocations_ = 0, frees_ = 0, steps_ = 0;
};

}  // namespace trireme::memory
