// Oracle: the sanitizers, and libFuzzer's time limit. The bytes are two ranks' collective traces in short: a header without its zeros, a group
// table, records. Whatever they are, reading, comparing, telling who is late or slow, and diagnosing must come to an end.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/str.h"
#include "diagnose/job/own_trace.h"
#include "diagnose/job/reason.h"
#include "profile/divergence.h"
#include "profile/hang_analysis.h"
#include "profile/straggler.h"
#include "profile/trace_decode.h"
#include "profile/trace_layout.h"

namespace {

using namespace trireme;
using profile::TraceRecord;
namespace layout = profile::layout;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  size_t take(void* into, size_t bytes) {
    const size_t n = std::min(bytes, left_);
    if (n > 0) std::memcpy(into, data_, n);
    data_ += n;
    left_ -= n;
    return n;
  }
  [[nodiscard]] size_t left() const { return left_; }

 private:
  const uint8_t* data_;
  size_t left_;
};

/// The image of a file. Most inputs get a header and record states that are believed, so that what lies behind the checks is reached.
std::vector<char> image_of(Bytes& bytes, int rank) {
  constexpr uint32_t kCapacity = 64;
  std::vector<char> image(layout::kHeaderBytes + kCapacity * sizeof(TraceRecord));
  uint8_t honest = 0;
  bytes.take(&honest, 1);
  layout::Header head{};
  head.magic = layout::kMagic;
  head.version = layout::kVersion;
  head.header_bytes = layout::kHeaderBytes;
  head.record_bytes = sizeof(TraceRecord);
  head.capacity = kCapacity;
  head.rank = rank;
  head.last_serial = UINT64_MAX;
  bytes.take(&head.wall_minus_monotonic_ns, sizeof(head.wall_minus_monotonic_ns));
  uint8_t num_groups = 0;
  uint8_t table = 0;
  bytes.take(&num_groups, 1);
  bytes.take(&table, 1);
  head.num_groups = num_groups % 8;
  head.table_used = table;
  if (honest % 16 == 0) bytes.take(&head, sizeof(head));
  std::memcpy(image.data(), &head, sizeof(head));
  bytes.take(image.data() + layout::kTableOffset, table);
  uint8_t boards = 0;
  bytes.take(&boards, 1);
  bytes.take(image.data() + layout::kBusyOffset, boards);
  bytes.take(image.data() + layout::kDataWaitsOffset, boards);
  uint8_t records = 0;
  bytes.take(&records, 1);
  for (uint32_t slot = 0; slot < records % kCapacity; ++slot) {
    TraceRecord record;
    bytes.take(static_cast<void*>(&record), sizeof(record));
    if (honest % 4 != 0) {
      record.serial = slot + 1;
      record.state = layout::state_word(record.serial, 1 + record.state % 4);
    }
    std::memcpy(image.data() + layout::kHeaderBytes + slot * sizeof(record), &record, sizeof(record));
  }
  return image;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  std::vector<profile::TraceSnapshot> traces;
  diagnose::Story story;
  for (int rank = 0; rank < 3 && bytes.left() > 0; ++rank) {
    const std::vector<char> image = image_of(bytes, rank);
    Result<profile::TraceSnapshot> trace = profile::decode_trace({image.data(), image.size()}, "fuzz");
    if (!trace.ok()) continue;
    traces.push_back(trace.value());
    (void)diagnose::add_own_trace(std::move(trace).value(), str("rank", rank, ".trace"), story);
  }
  profile::HangInputs inputs;
  inputs.traces = traces;
  inputs.num_ranks = 3;
  inputs.now_ns = uint64_t{1} << 50;
  (void)profile::find_hang(inputs);
  if (const auto divergence = profile::find_divergence(traces)) (void)divergence->words();
  for (const profile::StragglerNews& news : profile::StragglerWatch({.num_steps = 1}).look(traces)) (void)news.words();
  diagnose::Report report;
  reason(story, {}, report);
  (void)to_json(report);
  return 0;
}
