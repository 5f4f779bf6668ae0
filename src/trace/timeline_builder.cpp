#include "trace/timeline_builder.h"

#include <algorithm>
#include <charconv>

#include "base/str.h"
#include "trace/flops.h"

namespace trireme::trace {
namespace {

constexpr size_t kMaxLanes = 60'000;
constexpr size_t kMaxNames = 1'000'000;

std::string without_quotes(std::string_view token) {
  if (token.size() >= 2 && token.front() == '"') token = token.substr(1, token.size() - 2);
  return std::string(token);
}

/// "[0, 1, 2]"; one that ends in "..." was cut by the profiler: then first, step and size tell the rest.
std::vector<int> ranks_of(std::string_view text, int64_t size) {
  std::vector<int> ranks;
  const bool cut = text.find("...") != std::string_view::npos;
  while (true) {
    const size_t digit = text.find_first_of("0123456789");
    if (digit == std::string_view::npos) break;
    text.remove_prefix(digit);
    int rank = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc{}) return {};
    ranks.push_back(rank);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
  constexpr int64_t kMaxRanks = 1 << 20;
  if (cut && ranks.size() >= 2 && size > 0 && size <= kMaxRanks) {
    const int64_t stride = ranks[1] - ranks[0];
    const int64_t first = ranks[0];
    ranks.clear();
    for (int64_t i = 0; i < size; ++i) ranks.push_back(static_cast<int>(first + i * stride));
  }
  return ranks;
}

/// Times beyond +-73 years around 1970, and the base that is added to them, would overflow when two are subtracted.
constexpr int64_t kLatest = INT64_MAX / 4;
bool sane(int64_t ns) { return ns > -kLatest && ns < kLatest; }

int64_t plus(int64_t start_ns, int64_t duration_ns) {
  int64_t end = 0;
  return __builtin_add_overflow(start_ns, duration_ns, &end) ? kLatest : std::min(end, kLatest);
}

}  // namespace

void TimelineBuilder::take(const ChromeEvent& event, EventParser& parser) {
  ++timeline_.num_events;
  if (event.phase == 'M') return metadata(event, parser);
  if (!event.has_time || !sane(event.time_ns)) return;
  if (event.phase == 'X') {
    int64_t duration = event.has_duration ? event.duration_ns : 0;
    if (duration < 0) {
      ++timeline_.num_negative;
      duration = 0;
    }
    complete(event, duration, &parser);
  } else if (event.phase == 'B') {
    lane_key_.assign(event.pid).append("|").append(event.tid);
    open_[lane_key_].push_back({std::string(event.name), std::string(event.category), event.time_ns});
    seen(event.time_ns, event.time_ns);
  } else if (event.phase == 'E') {
    lane_key_.assign(event.pid).append("|").append(event.tid);
    const auto found = open_.find(lane_key_);
    if (found == open_.end() || found->second.empty()) return;
    const OpenSpan begun = std::move(found->second.back());
    found->second.pop_back();
    ChromeEvent whole = event;
    whole.name = begun.name;
    whole.category = begun.category;
    whole.time_ns = begun.start_ns;
    int64_t duration = event.time_ns - begun.start_ns;
    if (duration < 0) {
      ++timeline_.num_negative;
      duration = 0;
    }
    complete(whole, duration, &parser);
  }
}

void TimelineBuilder::seen(int64_t start_ns, int64_t end_ns) {
  if (!any_) {
    timeline_.first_ns = start_ns;
    timeline_.last_ns = end_ns;
    any_ = true;
  }
  timeline_.first_ns = std::min(timeline_.first_ns, start_ns);
  timeline_.last_ns = std::max(timeline_.last_ns, end_ns);
}

uint32_t TimelineBuilder::name_of(std::string_view name) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  if (timeline_.names.size() >= kMaxNames) return 0;
  const auto index = static_cast<uint32_t>(timeline_.names.size());
  timeline_.names.emplace_back(name);
  names_.emplace(timeline_.names.back(), index);
  return index;
}

uint16_t TimelineBuilder::lane_of(const ChromeEvent& event, bool device) {
  lane_key_.assign(event.pid).append("|").append(event.tid);
  if (lane_key_ == last_lane_key_ && !timeline_.lanes.empty()) return last_lane_;
  auto found = lanes_.find(lane_key_);
  if (found == lanes_.end()) {
    // Beyond what a lane's number holds, threads share the last lane.
    const auto index = static_cast<uint16_t>(std::min(timeline_.lanes.size(), kMaxLanes));
    if (timeline_.lanes.size() <= kMaxLanes) {
      timeline_.lanes.push_back({without_quotes(event.pid), without_quotes(event.tid), {}, device});
    }
    found = lanes_.emplace(lane_key_, index).first;
  }
  last_lane_key_ = lane_key_;
  last_lane_ = found->second;
  if (device) timeline_.lanes[last_lane_].device = true;
  return last_lane_;
}

void TimelineBuilder::metadata(const ChromeEvent& event, EventParser& parser) {
  if (event.name != "thread_name") return;
  // A name may stand before, between or behind the events of its thread.
  const std::string name = parser.text_arg(event.args, "name");
  const uint16_t lane = lane_of(event, false);
  timeline_.lanes[lane].name = name;
}

void TimelineBuilder::complete(const ChromeEvent& event, int64_t duration_ns, EventParser* parser) {
  const int64_t end_ns = plus(event.time_ns, duration_ns);
  const EventClass what = classify(event.category, event.name);
  if (what.kind == EventKind::kDescription) {
    if (parser == nullptr) return;
    CollectiveArgs args = parser->collective_args(event.args);
    if (args.rank >= 0 && timeline_.rank < 0) timeline_.rank = static_cast<int>(args.rank);
    if (args.external_id >= 0) descriptions_[args.external_id] = std::move(args);
    return;
  }
  if (what.kind == EventKind::kIgnored) return;
  seen(event.time_ns, end_ns);
  if (what.kind == EventKind::kStep) {
    timeline_.steps.push_back({what.step, event.time_ns, end_ns});
    return;
  }
  const bool device = what.kind == EventKind::kDevice;
  if (device) timeline_.on_device = true;
  const uint32_t name = name_of(event.name);
  timeline_.spans.push_back({event.time_ns, end_ns, name, lane_of(event, device), what.activity});
  if (what.collective) collective(event, what, end_ns, parser);
  if (!device && parser != nullptr && counts_flops(event.name)) {
    const auto flops = flops_of(event.name, parser->operator_args(event.args));
    if (flops) timeline_.operators.push_back({event.time_ns, *flops, name});
  }
}

void TimelineBuilder::collective(const ChromeEvent& event, const EventClass& what, int64_t end_ns,
                                 EventParser* parser) {
  PendingCall pending;
  pending.call.start_ns = event.time_ns;
  pending.call.end_ns = end_ns;
  pending.call.op = collective_op(event.name);
  if (parser != nullptr) {
    const CollectiveArgs args = parser->collective_args(event.args);
    pending.external_id = args.external_id;
    pending.described = !args.op.empty();
    if (pending.described) {
      describe(pending.call, args, event.name);
      if (args.rank >= 0 && timeline_.rank < 0) timeline_.rank = static_cast<int>(args.rank);
    } else if (what.kind == EventKind::kHost) {
      // Gloo's spans carry the shapes of the tensors alone.
      const OperatorArgs shapes = parser->operator_args(event.args);
      if (!shapes.dims.empty() && !shapes.types.empty() && dtype_bytes(shapes.types[0]) > 0 &&
          !shapes.dims[0].empty()) {
        int64_t elements = 1;
        for (const int64_t dim : shapes.dims[0]) {
          if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements)) elements = 0;
        }
        if (elements < INT64_MAX / 8) pending.call.bytes_in = elements * dtype_bytes(shapes.types[0]);
      }
    }
  }
  if (!pending.described) pending.call.group = group_of({});
  (what.kind == EventKind::kDevice ? device_calls_ : host_calls_).push_back(pending);
}

uint32_t TimelineBuilder::group_of(const CollectiveArgs& args) {
  const std::string key = args.group + "|" + args.ranks;
  const auto found = groups_.find(key);
  if (found != groups_.end()) return found->second;
  Group group;
  group.key = key;
  group.size = args.group_size;
  group.ranks = ranks_of(args.ranks, args.group_size);
  const bool numbered = !args.group.empty() && args.group.find_first_not_of("0123456789") == std::string::npos;
  group.name = args.group.empty()                                                         ? "all ranks"
               : numbered && !args.description.empty() && args.description != "undefined" ? args.description
                                                                                          : args.group;
  const auto index = static_cast<uint32_t>(timeline_.groups.size());
  timeline_.groups.push_back(std::move(group));
  groups_.emplace(key, index);
  return index;
}

void TimelineBuilder::describe(Call& call, const CollectiveArgs& args, std::string_view name) {
  const CollectiveOp told = collective_op(args.op);
  call.op = told != CollectiveOp::kOther ? told : collective_op(name);
  call.group = group_of(args);
  call.sequence = args.sequence;
  call.step = args.step;
  call.open = args.open;
  if (args.open) ++timeline_.num_open;
  const int64_t bytes = dtype_bytes(args.dtype);
  constexpr int64_t kMaxElements = INT64_MAX / 16;
  if (bytes > 0 && args.in_elements >= 0 && args.in_elements < kMaxElements) call.bytes_in = args.in_elements * bytes;
  if (bytes > 0 && args.out_elements >= 0 && args.out_elements < kMaxElements)
    call.bytes_out = args.out_elements * bytes;
  call.source = static_cast<int32_t>(std::clamp<int64_t>(args.source, -1, INT32_MAX));
  call.destination = static_cast<int32_t>(std::clamp<int64_t>(args.destination, -1, INT32_MAX));
}

// Older profilers describe a collective on the CPU only; the kernel has the same external id.
void TimelineBuilder::join_descriptions() {
  for (PendingCall& pending : device_calls_) {
    const auto found = pending.described ? descriptions_.end() : descriptions_.find(pending.external_id);
    if (found != descriptions_.end()) describe(pending.call, found->second, {});
  }
}

// On a GPU the streams tell what happened, and the CPU only where it communicates or waits for data itself; without one, the threads do.
void TimelineBuilder::keep_one_side() {
  if (!timeline_.on_device) return;
  std::erase_if(timeline_.spans, [this](const Span& span) {
    if (timeline_.lanes[span.lane].device || span.activity == Activity::kDataWait) return false;
    if (span.activity != Activity::kCommunication) return true;
    const std::string_view name = timeline_.names[span.name];
    return name.starts_with("c10d::") || name.starts_with("nccl:");
  });
  timeline_.spans.shrink_to_fit();
}

Timeline TimelineBuilder::finish() {
  for (auto& [lane, spans] : open_) {
    while (!spans.empty()) {
      ChromeEvent event;
      const OpenSpan begun = std::move(spans.back());
      spans.pop_back();
      event.name = begun.name;
      event.category = begun.category;
      event.pid = std::string_view(lane).substr(0, lane.find('|'));
      event.tid = std::string_view(lane).substr(lane.find('|') + 1);
      event.time_ns = begun.start_ns;
      ++timeline_.num_open;
      complete(event, std::max<int64_t>(timeline_.last_ns - begun.start_ns, 0), nullptr);
    }
  }
  join_descriptions();
  keep_one_side();
  for (const auto* calls : {&device_calls_, &host_calls_}) {
    for (const PendingCall& pending : *calls) timeline_.calls.push_back(pending.call);
  }
  std::stable_sort(timeline_.calls.begin(), timeline_.calls.end(),
                   [](const Call& a, const Call& b) { return a.start_ns < b.start_ns; });
  std::stable_sort(timeline_.steps.begin(), timeline_.steps.end(),
                   [](const Step& a, const Step& b) { return a.start_ns < b.start_ns; });
  std::stable_sort(timeline_.operators.begin(), timeline_.operators.end(),
                   [](const OperatorCall& a, const OperatorCall& b) { return a.time_ns < b.time_ns; });
  timeline_.communication_only =
      !timeline_.calls.empty() && std::all_of(timeline_.spans.begin(), timeline_.spans.end(), [](const Span& span) {
        return span.activity == Activity::kCommunication;
      });
  const bool numbered =
      std::any_of(timeline_.calls.begin(), timeline_.calls.end(), [](const Call& call) { return call.step > 0; });
  if (timeline_.steps.empty() && numbered) timeline_.steps = steps_of_calls(timeline_.calls, false);
  if (timeline_.steps.empty() && any_) timeline_.steps.push_back({-1, timeline_.first_ns, timeline_.last_ns});
  return std::move(timeline_);
}

}  // namespace trireme::trace
