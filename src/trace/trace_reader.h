// Reads a Chrome trace event by event: the splitter and the parser together, with what was wrong said once.
#pragma once

#include <functional>
#include <string>

#include "trace/chrome_event.h"
#include "trace/event_splitter.h"

namespace trireme::trace {

struct ReadResult {
  SplitNotes notes;
  uint64_t num_events = 0;  ///< whole ones
};

/// `take` is given every event that could be read, in the order of the file, with the parser for its arguments and its text.
using TakeEvent = std::function<void(const ChromeEvent& event, EventParser& parser, std::string_view text)>;

[[nodiscard]] ReadResult read_events(std::unique_ptr<ByteSource> source, const TakeEvent& take);

/// "not JSON at byte 26: ...", "cut off after 1 whole event: ...", one sentence for each thing; empty: the file is right.
[[nodiscard]] std::vector<std::string> describe_damage(const ReadResult& result);

}  // namespace trireme::trace
