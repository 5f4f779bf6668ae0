// Oracle: the sanitizers. Two flight-recorder dumps, memory snapshots or error files (JSON, or pickles where they begin as one), split at the first
// 0xff byte, are read as ranks 0 and 1 and compared.
#include <cstdint>
#include <memory>
#include <string>

#include "base/pickle_reader.h"
#include "diagnose/job/failure_files.h"
#include "diagnose/job/flight_recorder.h"
#include "diagnose/job/json_values.h"
#include "diagnose/job/memory_snapshot.h"
#include "diagnose/job/reason.h"

namespace {

using namespace trireme::diagnose;
namespace pickle = trireme::pickle;

void take(const pickle::Value& root, const std::string& file, Story& story) {
  if (is_flight_recorder(root)) (void)add_flight_recorder(root, file, story);
  if (is_memory_snapshot(root)) add_memory_snapshot(root, file, story);
  (void)add_failure_file(root, file, story);
}

void take_text(std::string_view text, const std::string& file, Story& story) {
  constexpr size_t kMostValues = 100'000;
  if (pickle::looks_like_pickle(text)) {
    const auto document = pickle::read(std::make_shared<const std::string>(text), {.max_values = kMostValues});
    if (document.ok()) take(document.value()->root(), file, story);
    return;
  }
  const auto values = read_json_values(text, kMostValues);
  if (values.ok()) take(*values.value(), file, story);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t middle = all.find('\xff');
  Story story;
  Report report;
  take_text(all.substr(0, middle), "trace_rank_0", story);
  if (middle != std::string_view::npos) take_text(all.substr(middle + 1), "trace_rank_1", story);
  reason(story, {}, report);
  (void)to_json(report);
  return 0;
}
