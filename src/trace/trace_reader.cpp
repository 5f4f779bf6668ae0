#include "trace/trace_reader.h"

#include "base/str.h"

namespace trireme::trace {

ReadResult read_events(std::unique_ptr<ByteSource> source, const TakeEvent& take) {
  EventSplitter splitter(std::move(source));
  EventParser parser;
  ReadResult result;
  ChromeEvent event;
  for (std::string_view text = splitter.next(); !text.empty(); text = splitter.next()) {
    const std::string why = parser.parse(text, event);
    if (!why.empty()) {
      splitter.refuse(why);
      continue;
    }
    ++result.num_events;
    take(event, parser, text);
  }
  result.notes = splitter.notes();
  return result;
}

std::vector<std::string> describe_damage(const ReadResult& result) {
  const SplitNotes& notes = result.notes;
  std::vector<std::string> text;
  if (notes.bytes == 0) return {"is empty"};
  if (!notes.is_trace && !notes.cut)
    return {"is no Chrome trace: neither an array of events nor an object with the array \"traceEvents\""};
  for (const Damage& damage : notes.damages) text.push_back(str("not JSON at byte ", damage.offset, ": ", damage.what));
  if (notes.num_damaged > notes.damages.size()) {
    text.push_back(
        str("and ", grouped(static_cast<int64_t>(notes.num_damaged - notes.damages.size())), " more such places"));
  }
  if (notes.gave_up) text.emplace_back("too much is damaged: the rest was not read, and counts are a lower limit");
  if (notes.cut) {
    text.push_back(str("is cut off at byte ", notes.bytes, ": ", grouped(static_cast<int64_t>(result.num_events)),
                       " whole event", result.num_events == 1 ? "" : "s", " read, counts are a lower limit"));
  }
  return text;
}

}  // namespace trireme::trace
