#include "diagnose/job/memory_snapshot.h"

#include <algorithm>

#include "base/library_function.h"
#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/oom_message.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

using pickle::Kind;
using pickle::Value;

int64_t integer(const Value& dict, std::string_view key, int64_t otherwise = 0) {
  const Value* value = dict.find(key);
  return value == nullptr ? otherwise : value->int_or(otherwise);
}

int64_t bytes(const Value& dict, std::string_view key) {
  constexpr int64_t kMost = int64_t{1} << 52;
  return std::clamp<int64_t>(integer(dict, key), 0, kMost);
}

/// The innermost frame that is neither in torch nor in C++'s libraries: "train.py:41 in step".
std::string site_of(const Value& block) {
  const Value* frames = block.find("frames");
  if (frames == nullptr) {  // before 2.1: history
    const Value* history = block.find("history");
    if (history != nullptr && history->is_sequence() && !history->items.empty())
      frames = history->items[0]->find("frames");
  }
  if (frames == nullptr || !frames->is_sequence()) return {};
  const Value* best = nullptr;
  constexpr size_t kLooked = 100;
  for (size_t i = 0; i < std::min(frames->items.size(), kLooked); ++i) {
    const Value* file = frames->items[i]->find("filename");
    if (file == nullptr) continue;
    const std::string_view name = file->str();
    if (name.empty() || name == "??") continue;
    if (best == nullptr) best = frames->items[i];
    const Value* function = frames->items[i]->find("name");
    const bool inside = has(name, "/torch/") || has(name, "/libc.so") || has(name, "/libgomp") ||
                        name.ends_with(".cpp") || name.ends_with(".h") || name.ends_with(".c") ||
                        (function != nullptr && is_library_function(function->str()));
    if (inside) continue;
    best = frames->items[i];
    break;
  }
  if (best == nullptr) return {};
  const Value* file = best->find("filename");
  const Value* name = best->find("name");
  const int64_t line = integer(*best, "line");
  return str(excerpt(file->str(), 200), line == 0 ? "" : str(":", line),
             name == nullptr ? "" : " in " + excerpt(name->str(), 80));
}

struct Device {
  int64_t reserved = 0;
  int64_t allocated = 0;
  int64_t largest_free = 0;
  int64_t segments = 0;
  std::map<std::string, std::pair<int64_t, int64_t>> sites;  ///< bytes, blocks
};

/// Of a snapshot by Trireme: CPU tensors are told as device 0.
bool is_of_cpu(const Value& root) {
  const Value* ours = root.find("trireme");
  const Value* device = ours == nullptr ? nullptr : ours->find("device");
  return device != nullptr && device->str() == "cpu";
}

std::string dropped_text(const Value& root) {
  const Value* ours = root.find("trireme");
  const int64_t dropped = ours == nullptr ? 0 : integer(*ours, "dropped_events");
  return dropped > 0 ? str(" The ", dropped, " oldest events were dropped.") : "";
}

std::string largest_sites(const Device& device, size_t most) {
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [site, held] : device.sites) order.emplace_back(held.first, site);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(order.size(), most); ++i) {
    parts.push_back(str(bytes_text(order[i].first), " in ", device.sites.at(order[i].second).second, " blocks from ",
                        order[i].second.empty() ? "places that were not recorded" : order[i].second));
  }
  return join(parts, "; ");
}

void add_segment(const Value& segment, std::map<int64_t, Device>& devices) {
  Device& device = devices[integer(segment, "device")];
  ++device.segments;
  device.reserved += bytes(segment, "total_size");
  const Value* blocks = segment.find("blocks");
  if (blocks == nullptr || !blocks->is_sequence()) return;
  for (const Value* block : blocks->items) {
    const Value* state = block->find("state");
    const int64_t size = bytes(*block, "size");
    if (state == nullptr) continue;
    if (state->str() == "inactive") {
      device.largest_free = std::max(device.largest_free, size);
      continue;
    }
    device.allocated += size;
    constexpr size_t kMostSites = 100'000;
    if (device.sites.size() >= kMostSites) continue;
    auto& held = device.sites[site_of(*block)];
    held.first += size;
    ++held.second;
  }
}

void add_events(const Value& root, const std::string& file, const std::map<int64_t, Device>& devices, Story& story) {
  const Value* traces = root.find("device_traces");
  if (traces == nullptr || !traces->is_sequence()) return;
  for (size_t number = 0; number < traces->items.size(); ++number) {
    if (!traces->items[number]->is_sequence()) continue;
    const auto& events = traces->items[number]->items;
    for (size_t i = 0; i < events.size(); ++i) {
      const Value* action = events[i]->find("action");
      if (action == nullptr || action->str() != "oom") continue;
      Finding finding;
      finding.code = "memory.snapshot_oom";
      finding.severity = Severity::kError;
      finding.confidence = 0.9;
      const int64_t ask = bytes(*events[i], "size");
      finding.cause =
          str(is_of_cpu(root) ? "the host" : str("device ", number), " ran out of memory: ", bytes_text(ask),
              " were asked for, ", bytes_text(bytes(*events[i], "device_free")), " were free",
              is_of_cpu(root) ? "" : " on the card");
      const auto device = devices.find(static_cast<int64_t>(number));
      if (device != devices.end()) {
        const int64_t cached = device->second.reserved - device->second.allocated;
        finding.advice = str("What holds the memory now: ", largest_sites(device->second, 5), ".");
        if (cached >= ask) {
          finding.code = "memory.fragmented";
          finding.advice +=
              str(" The cache has ", bytes_text(cached), " that are in no tensor, the largest piece ",
                  bytes_text(device->second.largest_free), ": PYTORCH_ALLOC_CONF=expandable_segments:True.");
        }
      }
      const std::string site = site_of(*events[i]);
      add_evidence(finding, {file, 0,
                             str("event ", i, " of device ", number, ": oom of ", ask, " bytes",
                                 site.empty() ? "" : " at " + site)});
      story.add(std::move(finding));
      return;  // the first one; the rest follow from it
    }
  }
}

}  // namespace

bool is_memory_snapshot(const Value& root) {
  if (root.is(Kind::kDict)) return root.find("segments") != nullptr;
  return root.is(Kind::kList) && !root.items.empty() && root.items[0]->find("blocks") != nullptr;
}

void add_memory_snapshot(const Value& root, const std::string& file, Story& story) {
  std::map<int64_t, Device> devices;
  const Value* segments = root.is(Kind::kDict) ? root.find("segments") : &root;
  if (segments != nullptr && segments->is_sequence()) {
    for (const Value* segment : segments->items) {
      if (segment->is(Kind::kDict) && devices.size() < 4096) add_segment(*segment, devices);
    }
  }
  add_events(root, file, devices, story);
  for (const auto& [number, device] : devices) {
    Finding finding;
    finding.code = "memory.snapshot";
    finding.severity = Severity::kInfo;
    finding.confidence = 1;
    finding.cause = is_of_cpu(root)
                        ? str("CPU tensors: ", bytes_text(device.allocated), " in use in ", device.segments, " blocks")
                        : str("device ", number, ": ", bytes_text(device.allocated), " in use of ",
                              bytes_text(device.reserved), " reserved in ", device.segments,
                              " segments; the largest free piece is ", bytes_text(device.largest_free));
    finding.advice = str("Most is held by: ", device.sites.empty() ? "nothing" : largest_sites(device, 5),
                         ". A time line of it: torch/cuda/_memory_viz.py trace_plot.", dropped_text(root));
    add_evidence(finding, {file, 0, {}});
    story.add(std::move(finding));
  }
}

}  // namespace trireme::diagnose
