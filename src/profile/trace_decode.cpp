#include "profile/trace_decode.h"

#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "profile/trace_layout.h"

namespace trireme::profile {
namespace {

Reason reject(const std::string& name, const std::string& why) {
  return Reason{str("[profile.collective_trace] '", name, "' ", why)};
}

/// It will be printed on terminals.
void make_printable(std::string& text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
}

std::string check_header(const layout::Header& head, size_t file_bytes) {
  if (head.magic != layout::kMagic) return "is not a collective trace of Trireme (or comes from another byte order)";
  if (head.version != layout::kVersion) {
    return str("has version ", head.version, "; this program reads version ", layout::kVersion,
               ". Use the program of the release that wrote it.");
  }
  if (head.header_bytes != layout::kHeaderBytes || head.record_bytes != sizeof(TraceRecord)) {
    return str("is damaged: header of ", head.header_bytes, " and records of ", head.record_bytes,
               " bytes; version 1 has ", layout::kHeaderBytes, " and ", sizeof(TraceRecord));
  }
  if (head.capacity == 0 || head.capacity > kMaxTraceCapacity) {
    return str("is damaged: a ring of ", head.capacity, " records; 1 to ", kMaxTraceCapacity, " are possible");
  }
  const size_t needed = layout::kHeaderBytes + size_t{head.capacity} * sizeof(TraceRecord);
  if (file_bytes < needed) return str("is cut short: ", file_bytes, " bytes, ", needed, " are needed");
  if (head.table_used > layout::kTableBytes || head.num_groups >= kUnlistedGroup) {
    return str("is damaged: ", head.num_groups, " groups in ", head.table_used, " bytes; the table has ",
               layout::kTableBytes);
  }
  if (head.rank < 0) return str("is damaged: rank ", head.rank);
  return {};
}

/// False when an entry does not fit into the table or makes no sense.
bool decode_groups(std::span<const char> table, uint32_t num_groups, TraceSnapshot& out) {
  size_t at = 0;
  size_t total = 0;
  const auto take = [&](void* into, size_t bytes) {
    if (bytes > table.size() - at) return false;
    std::memcpy(into, table.data() + at, bytes);
    at += bytes;
    return true;
  };
  for (uint32_t g = 0; g < num_groups; ++g) {
    layout::GroupEntry entry{};
    if (!take(&entry, sizeof(entry)) || entry.name_bytes > table.size() - at) return false;
    std::string name(table.data() + at, entry.name_bytes);
    make_printable(name);
    at += std::min<size_t>((size_t{entry.name_bytes} + 3) / 4 * 4, table.size() - at);
    std::vector<int> ranks;
    for (uint32_t r = 0; r < entry.num_runs; ++r) {
      layout::RankRun run{};
      if (!take(&run, sizeof(run)) || run.count > layout::kMaxGroupRanks) return false;
      if (run.stride == 0 && run.count > 1) return false;  // one rank many times
      total += run.count;
      const int64_t last = int64_t{run.first} + int64_t{run.stride} * (int64_t{run.count} - 1);
      // The second limit bounds what a damaged table can make us allocate.
      if (run.first < 0 || last < 0 || last > INT32_MAX || ranks.size() + run.count > layout::kMaxGroupRanks ||
          total > 4 * size_t{layout::kMaxGroupRanks}) {
        return false;
      }
      for (uint32_t i = 0; i < run.count; ++i) {
        ranks.push_back(static_cast<int>(run.first + int64_t{run.stride} * i));
      }
    }
    out.groups.push_back(std::move(name));
    out.group_ranks.push_back(std::move(ranks));
  }
  return true;
}

void decode_busy(std::span<const char> bytes, TraceSnapshot& out) {
  for (int slot = 0; slot < layout::kBusySlots; ++slot) {
    layout::BusySlot seen{};
    std::memcpy(&seen, bytes.data() + layout::kBusyOffset + static_cast<size_t>(slot) * sizeof(seen), sizeof(seen));
    if ((seen.in_use != layout::kBusyScope && seen.in_use != layout::kNote) || seen.version % 2 != 0) continue;
    BusyState state;
    state.what.assign(seen.what.data(), strnlen(seen.what.data(), seen.what.size()));
    make_printable(state.what);
    state.fraction = seen.fraction >= 0 && seen.fraction <= 1 ? static_cast<double>(seen.fraction) : -1;
    state.tid = seen.tid;
    state.since_ns = seen.since_ns;
    (seen.in_use == layout::kNote ? out.notes : out.busy).push_back(std::move(state));
  }
  for (std::vector<BusyState>* list : {&out.busy, &out.notes}) {
    std::stable_sort(list->begin(), list->end(),
                     [](const BusyState& a, const BusyState& b) { return a.since_ns < b.since_ns; });
  }
}

void decode_data_waits(std::span<const char> bytes, TraceSnapshot& out) {
  layout::DataWaits seen{};
  std::memcpy(&seen, bytes.data() + layout::kDataWaitsOffset, sizeof(seen));
  for (const layout::DataWait& wait : seen.waits) {
    const uint64_t duration_ns = wait.word >> 24;
    if (wait.word != layout::data_wait_word(wait.start_ns, duration_ns) || wait.start_ns >> 62 != 0) continue;
    out.data_waits.push_back({wait.start_ns, wait.start_ns + duration_ns});
  }
  std::sort(out.data_waits.begin(), out.data_waits.end(),
            [](const DataWaitSpan& a, const DataWaitSpan& b) { return a.start_ns < b.start_ns; });
}

/// Whether the bytes are one whole record of this slot; then with the state as a plain CallState.
bool decode_record(TraceRecord& record, uint32_t slot, const layout::Header& head) {
  const uint32_t code = layout::code_of(record.state);
  const bool known =
      code >= static_cast<uint32_t>(CallState::kQueued) && code <= static_cast<uint32_t>(CallState::kFailed);
  if (!known || record.serial == 0 || record.serial > head.last_serial) return false;
  if (!layout::belongs_to(record.state, record.serial) || (record.serial - 1) % head.capacity != slot) return false;
  if (record.root < -1) return false;
  record.state = code;
  if (record.group >= head.num_groups) record.group = kUnlistedGroup;
  // A time is stored before the state that announces it.
  if (code < static_cast<uint32_t>(CallState::kStarted)) record.started_ns = 0;
  if (code < static_cast<uint32_t>(CallState::kFinished)) record.finished_ns = 0;
  const uint64_t latest_start = record.started_ns != 0 ? record.started_ns : record.queued_ns;
  if (latest_start < record.queued_ns || (record.finished_ns != 0 && record.finished_ns < latest_start)) return false;
  std::string label(label_of(record));
  make_printable(label);
  std::fill(std::begin(record.label), std::end(record.label), '\0');
  std::copy(label.begin(), label.end(), record.label);
  return true;
}

}  // namespace

Result<TraceSnapshot> decode_trace(std::span<const char> bytes, const std::string& name) {
  layout::Header head{};
  if (bytes.size() < layout::kHeaderBytes) {
    return reject(
        name, str("is cut short or no trace: ", bytes.size(), " bytes; the header alone has ", layout::kHeaderBytes));
  }
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (const std::string wrong = check_header(head, bytes.size()); !wrong.empty()) return reject(name, wrong);

  TraceSnapshot out;
  out.rank = head.rank;
  out.pid = head.pid;
  out.host.assign(head.host.data(), strnlen(head.host.data(), head.host.size()));
  make_printable(out.host);
  out.closed = head.closed == 1;
  out.wall_minus_monotonic_ns = head.wall_minus_monotonic_ns;
  out.dropped = head.dropped;
  if (!decode_groups(bytes.subspan(layout::kTableOffset, head.table_used), head.num_groups, out)) {
    return reject(name,
                  str("is damaged: entry ", out.groups.size(), " of its ", head.num_groups, " groups makes no sense"));
  }
  decode_busy(bytes, out);
  decode_data_waits(bytes, out);
  for (uint32_t slot = 0; slot < head.capacity; ++slot) {
    TraceRecord record;
    std::memcpy(static_cast<void*>(&record), bytes.data() + layout::kHeaderBytes + size_t{slot} * sizeof(record),
                sizeof(record));
    if (record.state == 0 && record.serial == 0) continue;  // never used
    if (decode_record(record, slot, head)) {
      out.records.push_back(record);
    } else {
      ++out.torn;
    }
  }
  std::sort(out.records.begin(), out.records.end(),
            [](const TraceRecord& a, const TraceRecord& b) { return a.serial < b.serial; });
  return out;
}

}  // namespace trireme::profile
