// The snapshots of torch.cuda.memory._dump_snapshot (PyTorch >= 2.0), and of allocators that write the same: who holds the memory.
#pragma once

#include "base/pickle_reader.h"
#include "diagnose/job/story.h"

namespace trireme::diagnose {

/// Whether this value is one: a dict with "segments", or the bare list of segments that 1.12 wrote.
[[nodiscard]] bool is_memory_snapshot(const pickle::Value& root);

/// Adds findings: what is allocated and by which lines, how fragmented each device's cache is, and the out-of-memory events that were recorded.
void add_memory_snapshot(const pickle::Value& root, const std::string& file, Story& story);

}  // namespace trireme::diagnose
