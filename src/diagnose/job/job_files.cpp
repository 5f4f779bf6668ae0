#include "diagnose/job/job_files.h"

#include <array>

#include "base/pickle_reader.h"
#include "base/str.h"
#include "diagnose/job/chrome_trace.h"
#include "diagnose/job/failure_files.h"
#include "diagnose/job/flight_recorder.h"
#include "diagnose/job/json_values.h"
#include "diagnose/job/memory_snapshot.h"
#include "diagnose/job/own_trace.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

/// What `trireme run` renames when another job uses the folder.
bool is_of_earlier_job(const std::string& file) { return file.ends_with(".old"); }
constexpr const char* kEarlierJob = "of an earlier job in this folder; left out";

constexpr size_t kMostPickleBytes = size_t{1} << 30;
constexpr size_t kMostJsonBytes = size_t{256} << 20;

class TraceReader final : public FileReader {
 public:
  explicit TraceReader(Story& story) : story_(story) {}
  [[nodiscard]] const char* kind() const override { return "collective trace"; }
  [[nodiscard]] bool recognises(std::string_view head) const override { return is_own_trace(head); }
  [[nodiscard]] std::string read(const std::string& path, const std::string& file) override {
    return is_of_earlier_job(file) ? kEarlierJob : read_own_trace(path, file, story_);
  }
  void finish(Report& /*report*/) override {}

 private:
  Story& story_;
};

class PickleReader final : public FileReader {
 public:
  explicit PickleReader(Story& story) : story_(story) {}
  [[nodiscard]] const char* kind() const override { return "pickle"; }
  [[nodiscard]] bool recognises(std::string_view head) const override { return pickle::looks_like_pickle(head); }
  [[nodiscard]] std::string read(const std::string& path, const std::string& file) override {
    auto bytes = std::make_shared<const std::string>(read_whole_file(path, kMostPickleBytes));
    const auto document = pickle::read(std::move(bytes));
    if (!document.ok()) return "a damaged pickle: " + document.reason();
    const pickle::Value& root = document.value()->root();
    if (is_flight_recorder(root)) return add_flight_recorder(root, file, story_);
    if (is_memory_snapshot(root)) {
      add_memory_snapshot(root, file, story_);
      return {};
    }
    return root.is(pickle::Kind::kObject)
               ? str("a pickle of a Python object ('", root.text.substr(0, 100), "'), which is not made")
               : "a pickle that is neither a flight-recorder dump nor a memory snapshot";
  }
  void finish(Report& /*report*/) override {}

 private:
  Story& story_;
};

class JsonReader final : public FileReader {
 public:
  explicit JsonReader(Story& story) : story_(story) {}
  [[nodiscard]] const char* kind() const override { return "JSON report"; }
  /// Other JSON stays text: a log of JSON lines may hold what a line reader knows.
  [[nodiscard]] bool recognises(std::string_view head) const override {
    const std::string_view start = trimmed(head);
    if (!start.starts_with('{') && !start.starts_with('[')) return false;
    const bool recorder = has(head, "\"profiling_name\"") || (has(head, "\"pg_config\"") && has(head, "\"version\""));
    const bool snapshot = has(head, "\"segments\"") && has(head, "\"blocks\"");
    return recorder || snapshot || is_failure_file(head);
  }
  [[nodiscard]] std::string read(const std::string& path, const std::string& file) override {
    if (is_of_earlier_job(file)) return kEarlierJob;
    const std::string text = read_whole_file(path, kMostJsonBytes);
    const auto values = read_json_values(text);
    if (!values.ok()) return "damaged JSON: " + values.reason();
    const pickle::Value& root = *values.value();
    if (is_flight_recorder(root)) return add_flight_recorder(root, file, story_);
    if (is_memory_snapshot(root)) {
      add_memory_snapshot(root, file, story_);
      return {};
    }
    return add_failure_file(root, file, story_);
  }
  void finish(Report& /*report*/) override {}

 private:
  Story& story_;
};

class ChromeTraceReader final : public FileReader {
 public:
  [[nodiscard]] const char* kind() const override { return "Chrome trace"; }
  [[nodiscard]] bool recognises(std::string_view head) const override { return is_chrome_trace(head); }
  [[nodiscard]] std::string read(const std::string& path, const std::string& file) override {
    return look_at_chrome_trace(path, file);
  }
  void finish(Report& /*report*/) override {}
};

}  // namespace

std::vector<std::unique_ptr<FileReader>> job_file_readers(Story& story) {
  std::vector<std::unique_ptr<FileReader>> readers;
  readers.push_back(std::make_unique<TraceReader>(story));
  readers.push_back(std::make_unique<PickleReader>(story));
  readers.push_back(std::make_unique<JsonReader>(story));
  readers.push_back(std::make_unique<ChromeTraceReader>());
  return readers;
}

}  // namespace trireme::diagnose
