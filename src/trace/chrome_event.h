// One event of a Chrome trace, and the arguments of collectives and operators that PyTorch's profiler writes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::trace {

/// Times are ns, converted without rounding from the file's decimal microseconds. Views into the event's text or the parser.
struct ChromeEvent {
  char phase = 0;  ///< X complete, B begin, E end, M metadata, i instant, s t f flow, C counter; 0: none
  bool has_time = false;
  bool has_duration = false;
  int64_t time_ns = 0;
  int64_t duration_ns = 0;
  std::string_view name;      ///< unescaped
  std::string_view category;  ///< unescaped
  std::string_view pid;       ///< as it stands: 12 or "GPU 0", quotes included; empty: none
  std::string_view tid;
  std::string_view id;
  std::string_view args;  ///< raw JSON, an object; empty: none
  std::string_view text;  ///< all of it, as it was parsed; `pid`, `tid`, `id` and the two below point into it
  std::string_view time_text;
  std::string_view duration_text;
};

/// What one collective says of itself: the arguments of Kineto's record_param_comms and of NCCL kernels, which our own traces use too.
struct CollectiveArgs {
  std::string op;  ///< "Collective name"
  std::string dtype;
  std::string group;        ///< "Process Group Name"
  std::string description;  ///< "Process Group Description"
  std::string ranks;        ///< "Process Group Ranks", as it stands: "[0, 1, 2, ...]"
  int64_t in_elements = -1;
  int64_t out_elements = -1;
  int64_t group_size = -1;
  int64_t rank = -1;  ///< of the writer
  int64_t source = -1;
  int64_t destination = -1;
  int64_t sequence = -1;     ///< "Seq"
  int64_t external_id = -1;  ///< "External id": joins a kernel and the call that launched it
  int64_t step = -1;         ///< "Step", of our own traces
  bool open = false;         ///< "Open", of our own traces: had not ended when the trace was written
};

/// Shapes of an operator's inputs; [] for one that is no tensor, and for a list of tensors.
struct OperatorArgs {
  std::vector<std::vector<int64_t>> dims;  ///< "Input Dims"
  std::vector<std::string> types;          ///< "Input type"
  std::vector<std::string> concrete;       ///< "Concrete Inputs": "[1, 1]", "False", "" for tensors
};

/// Purpose        Reads events with simdjson, on demand: what nobody asks for is only skipped.
/// Lifetime       views in a result are good until the next call of the same function.
/// Thread safety  one thread.
class EventParser {
 public:
  EventParser();
  ~EventParser();

  /// `text` has kPadding readable bytes behind it. Returns why it is no event, or nothing. Bytes that are not UTF-8 are replaced by '?'.
  [[nodiscard]] std::string parse(std::string_view text, ChromeEvent& event);

  /// `args` of the event that was parsed last. A value of another type than expected counts as absent.
  [[nodiscard]] CollectiveArgs collective_args(std::string_view args);
  [[nodiscard]] OperatorArgs operator_args(std::string_view args);
  /// One of the arguments as text, without quotes; empty when it is not there.
  [[nodiscard]] std::string text_arg(std::string_view args, std::string_view key);

  /// Whether the text is JSON to its last byte: parse() looks only at what it needs.
  [[nodiscard]] bool is_json(std::string_view text);

 private:
  struct Parsers;
  std::unique_ptr<Parsers> parsers_;
  std::string cleaned_;
};

/// Decimal microseconds to ns: "12.3456" is 12346. False when it is no number, or beyond +-292 years.
[[nodiscard]] bool parse_us(std::string_view text, int64_t& ns);

/// The text with every byte that is not part of valid UTF-8 replaced by '?'.
[[nodiscard]] std::string clean_utf8(std::string_view text);

}  // namespace trireme::trace
