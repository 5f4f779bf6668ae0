#include "trace/merge.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/json.h"
#include "base/str.h"
#include "profile/chrome_trace.h"
#include "trace/output_file.h"
#include "trace/read_timeline.h"
#include "trace/trace_reader.h"
#include "trireme/base/error.h"

namespace trireme::trace {
namespace {

using profile::ChromeTraceWriter;

/// One output file: a slice of time.
struct Part {
  std::string path;
  std::unique_ptr<OutputFile> file;
  std::unique_ptr<ChromeTraceWriter> writer;
};

/// Moments at which the bytes of all inputs are cut into equal parts, as far as the spans that were kept tell.
class Slices {
 public:
  void add(const Timeline& timeline) {
    constexpr size_t kSamples = 4000;
    bytes_ += timeline.num_bytes;
    const size_t stride = std::max<size_t>(1, timeline.spans.size() / kSamples);
    const double weight = static_cast<double>(timeline.num_bytes) /
                          static_cast<double>(std::max<size_t>(1, timeline.spans.size() / stride));
    std::vector<std::pair<int64_t, double>> times;
    for (size_t i = 0; i < timeline.spans.size(); i += stride) times.emplace_back(timeline.spans[i].start_ns, weight);
    samples_.push_back(std::move(times));
  }

  [[nodiscard]] std::vector<int64_t> cuts(const std::vector<ClockFit>& fits, uint64_t limit) const {
    // Names of lanes and longer numbers make the result a little larger than its inputs.
    const double expected = 1.1 * static_cast<double>(bytes_);
    if (limit == 0 || expected <= static_cast<double>(limit)) return {};
    const auto parts = static_cast<size_t>(expected / static_cast<double>(limit)) + 1;
    std::vector<std::pair<int64_t, double>> all;
    double total = 0;
    for (size_t r = 0; r < samples_.size(); ++r) {
      for (const auto& [time, weight] : samples_[r]) {
        all.emplace_back(aligned_time(fits[r], time), weight);
        total += weight;
      }
    }
    std::sort(all.begin(), all.end());
    std::vector<int64_t> cuts;
    double sum = 0;
    for (const auto& [time, weight] : all) {
      sum += weight;
      if (sum >= total * static_cast<double>(cuts.size() + 1) / static_cast<double>(parts) && cuts.size() + 1 < parts)
        cuts.push_back(time);
    }
    return cuts;
  }

 private:
  uint64_t bytes_ = 0;
  std::vector<std::vector<std::pair<int64_t, double>>> samples_;
};

/// Replaces tokens of an event by others.
class Splice {
 public:
  explicit Splice(std::string_view text) : text_(text) {}

  void replace(std::string_view token, std::string with) {
    if (token.empty()) return;
    changes_.push_back({static_cast<size_t>(token.data() - text_.data()), token.size(), std::move(with)});
  }

  [[nodiscard]] std::string result(const std::string& inserted) {
    std::sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) { return a.at < b.at; });
    std::string out = "{" + inserted;
    size_t at = 1;
    for (const Change& change : changes_) {
      out.append(text_.substr(at, change.at - at)).append(change.with);
      at = change.at + change.size;
    }
    return out.append(text_.substr(at));
  }

 private:
  struct Change {
    size_t at = 0;
    size_t size = 0;
    std::string with;
  };
  std::string_view text_;
  std::vector<Change> changes_;
};

/// Line feeds between the members of an event become spaces: one event is one line.
void on_one_line(std::string& text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
}

class Merger {
 public:
  Merger(std::vector<Timeline>& timelines, const std::vector<ClockFit>& fits, MergeResult& result)
      : timelines_(timelines), fits_(fits), result_(result) {}

  void open_parts(const std::string& output, const std::vector<int64_t>& cuts, int64_t base_ns) {
    cuts_ = cuts;
    profile::ChromeTraceInfo info;
    info.base_ns = base_ns;
    info.num_merged = static_cast<int>(timelines_.size());
    for (size_t i = 0; i <= cuts.size(); ++i) {
      Part part;
      part.path = cuts.empty() ? output : numbered(output, i + 1);
      part.file = std::make_unique<OutputFile>(part.path);
      part.writer = std::make_unique<ChromeTraceWriter>(
          [file = part.file.get()](std::string_view text) { file->write(text); }, info);
      parts_.push_back(std::move(part));
    }
  }

  void add(size_t r) {
    rank_ = r;
    lanes_.clear();
    lane_names_.clear();
    open_.clear();
    const Timeline& timeline = timelines_[r];
    if (timeline.communication_only) {
      add_ring(timeline);
    } else {
      (void)read_events(open_bytes(timeline.source), [this](const ChromeEvent& event, EventParser& parser,
                                                            std::string_view) { take(event, parser); });
    }
    close_open();
    for (Part& part : parts_) {
      const std::string host = timeline.host.empty() ? "" : str(" (", timeline.host, ")");
      part.writer->process_name(timeline.rank, str("rank ", timeline.rank, host));
      for (const auto& [key, lane] : lanes_) part.writer->thread_name(timeline.rank, lane, name_of(key));
    }
  }

  void finish() {
    for (Part& part : parts_) {
      part.writer->finish();
      result_.file_events.push_back(part.writer->num_events());
      result_.file_bytes.push_back(part.writer->num_bytes());
      result_.num_events += part.writer->num_events();
    }
    for (Part& part : parts_) {
      part.file->finish();
      result_.files.push_back(part.path);
    }
  }

 private:
  static std::string numbered(const std::string& path, size_t number) {
    for (const std::string ending : {".json.gz", ".json", ".gz"}) {
      if (path.ends_with(ending)) return str(path.substr(0, path.size() - ending.size()), ".", number, ending);
    }
    return str(path, ".", number);
  }

  Part& part_at(int64_t time_ns) {
    return parts_[static_cast<size_t>(std::upper_bound(cuts_.begin(), cuts_.end(), time_ns) - cuts_.begin())];
  }

  int64_t lane_of(const std::string& key) {
    return lanes_.try_emplace(key, static_cast<int64_t>(lanes_.size()) + 1).first->second;
  }

  /// What the thread was called, else its process and number.
  std::string name_of(const std::string& key) const {
    const auto found = lane_names_.find(key);
    if (found != lane_names_.end()) return found->second;
    std::string name;
    for (const char c : key) {
      if (c != '"') name.push_back(c == '|' ? ' ' : c);
    }
    return name;
  }

  /// Ids join the ends of an arrow; those of two ranks must not meet.
  std::string id_of(std::string_view id) const {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
    constexpr uint64_t kMost = uint64_t{1} << 32;
    if (error != std::errc{} || end != id.data() + id.size() || number >= kMost)
      number = std::hash<std::string_view>{}(id) % kMost;
    return std::to_string(static_cast<uint64_t>(timelines_[rank_].rank) * kMost + number);
  }

  void take(const ChromeEvent& event, EventParser& parser) {
    const std::string key = str(event.pid, "|", event.tid);
    if (event.phase == 'M') {
      if (event.name == "thread_name") lane_names_[key] = parser.text_arg(event.args, "name");
      return;
    }
    if (!event.has_time || event.phase == 0) return;
    if (!parser.is_json(event.text)) {
      ++result_.num_left_out;
      return;
    }
    const Timeline& timeline = timelines_[rank_];
    int64_t time = 0;
    if (__builtin_add_overflow(event.time_ns, timeline.base_ns, &time) || time > INT64_MAX / 2 || time < INT64_MIN / 2)
      return;
    time = aligned_time(fits_[rank_], time);
    const int64_t lane = lane_of(key);
    if (event.phase == 'B') ++open_[lane];
    if (event.phase == 'E' && --open_[lane] < 0) {  // ends what never began
      open_[lane] = 0;
      return;
    }
    Part& part = part_at(time);
    Splice splice(event.text);
    splice.replace(event.time_text, part.writer->us(time));
    if (event.has_duration && event.duration_ns < 0) splice.replace(event.duration_text, "0");
    splice.replace(event.pid, std::to_string(timeline.rank));
    splice.replace(event.tid, std::to_string(lane));
    const bool arrow = std::string_view("stfbne").find(event.phase) != std::string_view::npos;
    if (arrow) splice.replace(event.id, id_of(event.id));
    std::string inserted;
    if (event.pid.empty()) inserted += str("\"pid\": ", timeline.rank, ", ");
    if (event.tid.empty()) inserted += str("\"tid\": ", lane, ", ");
    std::string line = splice.result(inserted);
    on_one_line(line);
    part.writer->raw(line);
  }

  void close_open() {
    const Timeline& timeline = timelines_[rank_];
    const int64_t time = aligned_time(fits_[rank_], timeline.last_ns);
    for (const auto& [lane, count] : open_) {
      for (int64_t i = 0; i < count; ++i) {
        Part& part = part_at(time);
        part.writer->raw(str("{\"ph\": \"E\", \"pid\": ", timeline.rank, ", \"tid\": ", lane,
                             ", \"ts\": ", part.writer->us(time), ", \"args\": {\"Open\": true}}"));
      }
    }
  }

  void add_ring(const Timeline& timeline) {
    for (const Call& call : timeline.calls) {
      const Group& group = timeline.groups[call.group];
      const int64_t lane = lane_of(group.name);
      lane_names_[group.name] = "collectives of " + group.name;
      profile::ChromeSpan span;
      span.name = to_string(call.op);
      span.category = "collective";
      span.start_ns = aligned_time(fits_[rank_], call.start_ns);
      span.end_ns = aligned_time(fits_[rank_], call.end_ns);
      span.pid = timeline.rank;
      span.tid = lane;
      span.open = call.open;
      const std::string args =
          str("\"Seq\": ", call.sequence, ", \"Step\": ", call.step, ", \"bytes\": ", call.bytes_in);
      span.args = args;
      part_at(span.start_ns).writer->span(span);
    }
  }

  std::vector<Timeline>& timelines_;
  const std::vector<ClockFit>& fits_;
  MergeResult& result_;
  std::vector<Part> parts_;
  std::vector<int64_t> cuts_;
  size_t rank_ = 0;
  std::map<std::string, int64_t> lanes_;  // by "pid|tid" as the file has them
  std::map<std::string, std::string> lane_names_;
  std::map<int64_t, int64_t> open_;  // B without E, by lane
};

void require_no_input(const std::vector<Timeline>& inputs, const std::string& output) {
  for (const Timeline& input : inputs) {
    std::error_code error;
    if (!std::filesystem::equivalent(input.source, output, error) || error) continue;
    throw Error(ErrorKind::kInvalidArgument,
                str("[trace.merge] '", output, "' is one of the traces to merge; another name is required."));
  }
}

}  // namespace

MergeResult merge_traces(const std::vector<std::string>& paths, const std::string& output,
                         const MergeOptions& options) {
  MergeResult result;
  std::vector<Timeline> timelines = load_timelines(paths, result.notices);
  if (timelines.empty())
    throw Error(ErrorKind::kInvalidArgument, "[trace.merge] no trace was given; at least one is required.");
  require_no_input(timelines, output);
  Slices slices;
  int64_t first = INT64_MAX;
  for (Timeline& timeline : timelines) {
    slices.add(timeline);
    timeline.spans = {};
    timeline.operators = {};
    for (const std::string& notice : timeline.notices) result.notices.push_back(str(timeline.source, ": ", notice));
  }
  const std::vector<Match> matches = match_calls(timelines);
  const std::vector<ClockFit> fits = fit_clocks(timelines, matches);
  result.clock_lines = describe_clocks(timelines, fits);
  for (size_t r = 0; r < timelines.size(); ++r) first = std::min(first, aligned_time(fits[r], timelines[r].first_ns));
  constexpr int64_t kSecond = 1'000'000'000;
  const std::vector<int64_t> cuts = slices.cuts(fits, options.limit_bytes);
  Merger merger(timelines, fits, result);
  merger.open_parts(output, cuts, first / kSecond * kSecond);
  for (size_t r = 0; r < timelines.size(); ++r) merger.add(r);
  merger.finish();
  if (result.num_left_out > 0) {
    result.notices.push_back(str(result.num_left_out, " events have arguments that are not JSON, and were left out"));
  }
  if (result.files.size() > 1) {
    result.notices.push_back(str("more than ", options.limit_bytes / 1'000'000,
                                 " MB, above which viewers stay blank: written as ", result.files.size(),
                                 " files, each a slice of time of all ranks"));
  }
  for (size_t i = 0; i < result.files.size(); ++i) {
    if (options.limit_bytes == 0 ? result.file_bytes[i] > MergeOptions{}.limit_bytes
                                 : result.file_bytes[i] > options.limit_bytes) {
      result.notices.push_back(str("'", result.files[i], "' has ", result.file_bytes[i] / 1'000'000,
                                   " MB: viewers may stay blank; 'trireme trace report' needs none"));
    }
  }
  return result;
}

}  // namespace trireme::trace
