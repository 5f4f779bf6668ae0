// Source of the format: torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/_memory_viz.py of PyTorch 2.13.
#include <map>
#include <optional>
#include <sstream>

#include "base/pickle_writer.h"
#include "memory/track/allocation_history.h"
#include "memory/track/call_site.h"

namespace trireme::memory {
namespace {

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const HistoryCopy& history) : history_(history), to_(out_), stacks_(history.stacks.size()) {}

  std::string write() {
    to_.begin_dict();
    word("segments");
    to_.begin_list();
    for (const HistoryEvent& block : history_.alive) segment(block);
    to_.end();
    word("device_traces");
    to_.begin_list();
    to_.begin_list();
    for (const HistoryEvent& event : history_.events) trace_entries(event);
    to_.end();
    to_.end();
    word("allocator_settings");
    to_.begin_dict();
    to_.end();
    word("trireme");
    to_.begin_dict();
    text_entry("device", "cpu");
    entry("recorded_events", static_cast<int64_t>(history_.recorded));
    entry("dropped_events", static_cast<int64_t>(history_.dropped()));
    to_.end();
    to_.end();
    to_.finish();
    return std::move(out_);
  }

 private:
  static int64_t address(const HistoryEvent& event) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(event.block));
  }

  // Keys and names come again and again: each is written once.
  void word(const std::string& text) {
    const auto known = words_.find(text);
    if (known != words_.end()) return to_.recall(known->second);
    to_.text(text);
    words_.emplace(text, to_.remember());
  }
  void entry(const char* key, int64_t value) {
    word(key);
    to_.integer(value);
  }
  void text_entry(const char* key, const char* value) {
    word(key);
    word(value);
  }

  void frame(void* address) {
    const auto known = frames_.find(address);
    if (known != frames_.end()) return to_.recall(known->second);
    const Frame found = describe_frame(address);
    std::ostringstream file;
    file << (found.module.empty() ? "??" : found.module) << "+0x" << std::hex << found.offset;
    to_.begin_dict();
    word("name");
    to_.text(found.function.empty() ? "??" : found.function);
    word("filename");
    to_.text(file.str());
    entry("line", 0);
    to_.end();
    frames_.emplace(address, to_.remember());
  }
  void frames(const HistoryEvent& event) {
    word("frames");
    std::optional<uint32_t>& known = stacks_[event.stack];
    if (known) return to_.recall(*known);
    to_.begin_list();
    for (void* address : history_.stacks[event.stack]) frame(address);
    to_.end();
    known = to_.remember();
  }

  void segment(const HistoryEvent& block) {
    to_.begin_dict();
    entry("device", 0);
    entry("address", address(block));
    for (const char* size : {"total_size", "allocated_size", "active_size", "requested_size"}) entry(size, block.bytes);
    entry("stream", 0);
    text_entry("segment_type", block.bytes >= (1 << 20) ? "large" : "small");
    word("segment_pool_id");
    to_.begin_tuple();
    to_.integer(0);
    to_.integer(0);
    to_.end();
    word("is_expandable");
    to_.boolean(false);
    frames(block);
    word("blocks");
    to_.begin_list();
    to_.begin_dict();
    entry("address", address(block));
    entry("size", block.bytes);
    entry("requested_size", block.bytes);
    text_entry("state", "active_allocated");
    frames(block);
    to_.end();
    to_.end();
    to_.end();
  }

  void trace_entry(const HistoryEvent& event, const char* action) {
    to_.begin_dict();
    text_entry("action", action);
    if (event.action == HistoryEvent::Action::kOutOfMemory) {
      entry("device_free", event.free_bytes);
    } else {
      entry("addr", address(event));
    }
    entry("size", event.bytes);
    entry("stream", 0);
    entry("time_us", event.time_us);
    frames(event);
    to_.end();
  }
  void trace_entries(const HistoryEvent& event) {
    switch (event.action) {
      case HistoryEvent::Action::kAlloc:
        trace_entry(event, "alloc");
        break;
      case HistoryEvent::Action::kFree:
        trace_entry(event, "free_requested");
        trace_entry(event, "free_completed");
        break;
      case HistoryEvent::Action::kOutOfMemory:
        trace_entry(event, "oom");
        break;
    }
  }

  const HistoryCopy& history_;
  std::string out_;
  pickle::Writer to_;
  std::map<std::string, uint32_t> words_;
  std::map<void*, uint32_t> frames_;
  std::vector<std::optional<uint32_t>> stacks_;
};

}  // namespace

std::string snapshot_pickle(const HistoryCopy& history) { return SnapshotWriter(history).write(); }

}  // namespace trireme::memory
