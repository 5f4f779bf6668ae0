#include "profile/chrome_trace.h"

#include "base/json.h"
#include "base/str.h"

namespace trireme::profile {
namespace {

constexpr size_t kPiece = 65536;

}  // namespace

std::string decimal_us(int64_t ns) {
  const bool negative = ns < 0;
  const uint64_t size = negative ? 0 - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  std::string text = std::to_string(size / 1000);
  std::string rest = std::to_string(size % 1000);
  text.append(".").append(3 - rest.size(), '0').append(rest);
  return negative ? "-" + text : text;
}

ChromeTraceWriter::ChromeTraceWriter(WriteText write, const ChromeTraceInfo& info)
    : write_(std::move(write)), base_ns_(info.base_ns) {
  pending_ = "{\"schemaVersion\": 1,\n";
  if (info.rank >= 0 || info.world_size >= 0 || !info.backend.empty()) {
    pending_ += str("\"distributedInfo\": {\"backend\": ", json_quote(info.backend));
    if (info.rank >= 0) pending_ += str(", \"rank\": ", info.rank);
    if (info.world_size >= 0) pending_ += str(", \"world_size\": ", info.world_size);
    pending_ += "},\n";
  }
  if (!info.host.empty()) pending_ += str("\"host_name\": ", json_quote(info.host), ",\n");
  if (info.num_merged > 0) pending_ += str("\"mergedRanks\": ", info.num_merged, ",\n");
  pending_ += str("\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": ", info.base_ns, ",\n\"traceEvents\": [\n");
}

std::string ChromeTraceWriter::us(int64_t time_ns) const { return decimal_us(time_ns - base_ns_); }

// The line feed of the last event, which would be followed by a comma, is written with the next one.
void ChromeTraceWriter::begin_event() {
  if (num_events_++ > 0) pending_ += ",\n";
  if (pending_.size() >= kPiece) hand_on();
}

void ChromeTraceWriter::hand_on() {
  num_bytes_ += pending_.size();
  write_(pending_);
  pending_.clear();
}

// Appends rather than str(): a profiler writes millions of these.
void ChromeTraceWriter::span(const ChromeSpan& span) {
  begin_event();
  const bool backwards = span.end_ns < span.start_ns;
  if (backwards) ++num_stepped_back_;
  pending_.append("{\"ph\": \"X\", \"cat\": ")
      .append(json_quote(span.category))
      .append(", \"name\": ")
      .append(json_quote(span.name));
  pending_.append(", \"pid\": ")
      .append(std::to_string(span.pid))
      .append(", \"tid\": ")
      .append(std::to_string(span.tid));
  pending_.append(", \"ts\": ").append(us(span.start_ns));
  pending_.append(", \"dur\": ").append(decimal_us(backwards ? 0 : span.end_ns - span.start_ns));
  const char* before = ", \"args\": {";
  const auto add = [this, &before](std::string_view members) {
    pending_.append(before).append(members);
    before = ", ";
  };
  const size_t without = pending_.size();
  if (!span.args.empty()) add(span.args);
  if (span.open) add("\"Open\": true");
  if (backwards) add("\"Clock stepped back\": true");
  pending_ += pending_.size() > without ? "}}" : "}";
}

void ChromeTraceWriter::process_name(int64_t pid, std::string_view name) {
  begin_event();
  pending_ += str("{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": ", pid,
                  ", \"tid\": 0, \"args\": {\"name\": ", json_quote(name), "}},\n");
  pending_ += str("{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": ", pid,
                  ", \"tid\": 0, \"args\": {\"sort_index\": ", pid, "}}");
  ++num_events_;
}

void ChromeTraceWriter::thread_name(int64_t pid, int64_t tid, std::string_view name) {
  begin_event();
  pending_ += str("{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": ", pid, ", \"tid\": ", tid,
                  ", \"args\": {\"name\": ", json_quote(name), "}},\n");
  pending_ += str("{\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": ", pid, ", \"tid\": ", tid,
                  ", \"args\": {\"sort_index\": ", tid, "}}");
  ++num_events_;
}

void ChromeTraceWriter::raw(std::string_view event) {
  begin_event();
  pending_ += event;
}

void ChromeTraceWriter::finish() {
  pending_ += "\n]}\n";
  hand_on();
}

}  // namespace trireme::profile
